"""Clusters that keep pace: of which products, and what their kernels compile to, without a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.targets.hopper.products.test_compile import assembly, count, declared
from tests.targets.hopper.tracing.test_trace import N, bound
from tiercel.targets.hopper import source
from tiercel.targets.hopper.config import Config, Tile
from tiercel.targets.hopper.epilogues.epilogue import epilogue_text, staged_outputs
from tiercel.targets.hopper.epilogues.tile import WIDEST
from tiercel.targets.hopper.launching.tensor_map import TensorMap
from tiercel.targets.hopper.products import classical, heuristic, paced
from tiercel.targets.hopper.products.params import Params
from tiercel.targets.hopper.products.stream_k import Shares

PLAIN = Config(heuristic.CANDIDATES[0], "bfloat16", "bfloat16", False, False)


def params(rows: int, columns: int, k_tiles: int, **changes) -> Params:
    return Params(
        maps=(TensorMap(128),) * 3, block_rows=0, block_columns=0, tile_columns=0, k_tiles=k_tiles,
        cluster_rows=rows, cluster_columns=columns, batches=1, group=8, a_batch_step=0,
        b_batch_step=0, alpha=1, beta=0, **changes,
    )  # fmt: skip


def test_long_products_keep_pace():
    of_16384 = params(64, 64, 256)  # cluster tiles of 256 x 256: 63 turns of 66
    assert paced.keeps_pace(PLAIN, of_16384, 132)
    assert not paced.keeps_pace(PLAIN, params(16, 16, 64), 132)  # 4096: 4 turns
    assert not paced.keeps_pace(replace(PLAIN, grouped=True), of_16384, 132)
    assert not paced.keeps_pace(replace(PLAIN, traced=True), of_16384, 132)
    assert not paced.keeps_pace(PLAIN, params(1, 1, 10_000), 2)  # one cluster
    halves = replace(PLAIN, tile=Tile(128, 128, 6, "cooperative", cluster_k=2))
    assert not paced.keeps_pace(halves, of_16384, 132)


LARGE = replace(PLAIN, tile=heuristic.LARGE)
TF32 = replace(PLAIN, operand="float32", output="float32")


@pytest.mark.parametrize(
    "config",
    [
        PLAIN,
        replace(LARGE, b_mn_major=True),
        replace(TF32, stream_k=True),
        replace(TF32, tile=heuristic.LARGE, a_mn_major=True, fragments=True, swapped=True),
        replace(PLAIN, operand="float8_e4m3fn", scaling="blocks", promoted=True),
    ],
    ids=["bfloat16", "large", "tf32 shared", "large fragments", "blocks"],
)
def test_products_keep_to_registers_and_count_without_a_fence(config: Config):
    alone, together = (assembly(classical.text(replace(config, paced=on))) for on in (False, True))
    assert count("GMMA", together) == count("GMMA", alone)
    loop = together[together.index("GMMA") : together.rindex("GMMA")]
    assert count("LDL", loop) == count("STL", loop) == 0
    assert together.count("NANOSLEEP") == 1 > alone.count("NANOSLEEP")
    assert together.count("MEMBAR.ALL.GPU") == alone.count("MEMBAR.ALL.GPU")


@pytest.mark.parametrize("name", ["gelu", "cross_entropy"])
def test_epilogues_keep_to_registers(name: str):
    instance = bound(name)
    epilogue = epilogue_text(instance, staged_outputs(instance, N), True, True)
    config = replace(PLAIN, tile=WIDEST)
    alone, together = (
        assembly(source.text(made, classical.program(made), epilogue))
        for made in (config, replace(config, paced=True))
    )
    loop = together[together.index("GMMA") : together.rindex("GMMA")]
    assert count("LDL", loop) == count("STL", loop) == 0
    assert count("LDL", together) <= 9  # by the producer, of 24 registers
    assert together.count("NANOSLEEP") == alone.count("NANOSLEEP") + 1


def test_argument_has_the_layout_that_the_kernel_reads():
    config = replace(PLAIN, stream_k=True, paced=True, direct=True)
    content = params(
        0, 0, 0, stream_k=Shares(1, 2, 3, 0.0).pack(0, 0), paced=paced.NOWHERE, epilogue=bytes(24)
    )
    assert content.paced_word == content.stream_k_word + 4
    text = classical.text(config)
    shared = config.tile.shared_bytes
    declared(text[: text.index("struct Program")], len(content.pack()), "Params", "Config", shared)
