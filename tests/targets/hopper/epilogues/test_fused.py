"""Kernels that run a scheme with a traced epilogue compile to what they should be."""

import re

import pytest

from tests.targets.hopper.products.test_compile import assembly, count, declared
from tests.targets.hopper.tracing.test_trace import bound
from tiercel import schemes
from tiercel.lower.accumulator import accumulate
from tiercel.lower.accumulator.combining import Where
from tiercel.lower.epilogue.cuda.params import params_dtype
from tiercel.targets.hopper.config import SHARED_BYTES, Config
from tiercel.targets.hopper.epilogues.epilogue import EpilogueText, epilogue_text, staged_outputs
from tiercel.targets.hopper.fused import source
from tiercel.targets.hopper.fused import tables as fused
from tiercel.targets.hopper.fused.params import NOBODY, SchemeParams, nothing
from tiercel.targets.hopper.fused.planes import UNITY
from tiercel.targets.hopper.fused.schedule import TILE
from tiercel.targets.hopper.launching.tensor_map import TensorMap

CONFIG = Config(TILE, "bfloat16", "bfloat16", False, False)
WINOGRAD = accumulate(schemes.get("winograd"))
COLUMNS = 768


def lowered(where: Where) -> fused.Fused:
    return fused.lower(WINOGRAD, "bfloat16", where != "before")


def epilogue(name: str) -> EpilogueText:
    instance = bound(name)
    return epilogue_text(instance, staged_outputs(instance, COLUMNS), whole=True, unit=True)


@pytest.mark.parametrize("where", ["before", "beside", "first"])
@pytest.mark.parametrize("name", ["gelu", "swiglu", "rope", "residual_rms", "cross_entropy"])
def test_products_do_not_wait_for_the_epilogue(name: str, where: Where):
    sass = assembly(source.text(CONFIG, lowered(where), where, epilogue(name)))
    k_tiles = 2 * (4 + 2)  # as without an epilogue: of two types, four apart and two loops
    assert count("HGMMA", sass) == 4 * k_tiles
    assert len(re.findall("WARPGROUP.DEPBAR.LE gsb0, 0x1", sass)) == k_tiles
    assert len(re.findall("WARPGROUP.DEPBAR.LE gsb0, 0x0", sass)) == 2
    stored = {"cross_entropy": 0, "residual_rms": 2}.get(name, 1)
    # Beside products of two types, and when nothing is multiplied any more, twice.
    assert count("UTMASTG", sass) == 4 * stored


@pytest.mark.parametrize("where", ["before", "beside"])
def test_idle_warps_complete_rows(where: Where):
    sass = assembly(source.text(CONFIG, lowered(where), where, epilogue("cross_entropy")))
    # No consumer goes to memory for it, or waits until what it wrote is there.
    first, last = sass.index("HGMMA"), sass.rindex("HGMMA")
    assert not re.search("ATOMG|MEMBAR", sass[first:last])
    assert count("ATOMG", sass[last:]) > 0


@pytest.mark.parametrize("where", ["before", "beside"])
def test_the_argument_has_the_layout_that_the_kernel_reads(where: Where):
    instance, tables = bound("cross_entropy"), lowered(where)
    maps, none = 2 + 2 + 4, nothing(UNITY)
    content = SchemeParams(
        (TensorMap(128),) * maps, bytes(80 + 4 * 8) if tables.left else none, none,
        scratch=0, flag=0, block_rows=0, block_columns=0, tile_columns=0,
        k_tiles=0, cluster_rows=0, cluster_columns=0, group=0, first_turn=0, first=NOBODY,
        beside=NOBODY, split=0, alpha=0, plane_scale=1, verdict=bytes(64), arrived=0,
        epilogue=bytes(16 + params_dtype(instance).itemsize),
    ).pack()  # fmt: skip
    text = source.text(CONFIG, tables, where, epilogue("cross_entropy"))
    shared = source.shared_bytes(CONFIG, where)
    assert shared <= SHARED_BYTES
    declared(text[: text.rindex('extern "C"')], len(content), "SchemeParams", "Scheme", shared)


def test_the_classical_product_reads_blocks_in_place():
    tables = lowered("beside")
    assert [x for x in tables.products_again if "awaited" in x] == []
    pairs = [
        tuple(map(int, x.removeprefix("product(")[:-1].split(", "))) for x in tables.products_again
    ]
    blocks = [
        (tables.a_planes[a].plane.terms[0][0], tables.b_planes[b].plane.terms[0][0])
        for a, b in pairs
    ]
    assert not any(tables.a_planes[a].written or tables.b_planes[b].written for a, b in pairs)
    # C[i, j] = A[i, 0] B[0, j] + A[i, 1] B[1, j]
    assert blocks == [(2 * i + x, 2 * x + j) for i in (0, 1) for j in (0, 1) for x in (0, 1)]
    assert sum(x.startswith("store") for x in tables.steps_again) == 4
