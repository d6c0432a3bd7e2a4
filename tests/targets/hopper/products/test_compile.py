"""Every kernel that the heuristic can choose compiles, without a GPU, to what it should be."""

from __future__ import annotations

import re
import subprocess
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from tiercel import schemes
from tiercel.lower.accumulator import accumulate
from tiercel.lower.accumulator.combining import Where
from tiercel.targets.hopper import source
from tiercel.targets.hopper.config import SHARED_BYTES, Config
from tiercel.targets.hopper.fused import planes, tables
from tiercel.targets.hopper.fused import source as fused_source
from tiercel.targets.hopper.fused.params import NOBODY, SchemeParams, nothing
from tiercel.targets.hopper.fused.planes import UNITY
from tiercel.targets.hopper.launching import compile as nvrtc
from tiercel.targets.hopper.launching.tensor_map import TensorMap
from tiercel.targets.hopper.products import heuristic, split
from tiercel.targets.hopper.products.params import Params

FIRST = heuristic.CANDIDATES[0]
CONFIGS = {
    **{
        f"{tile.schedule}-{tile.m}x{tile.n}": Config(tile, "bfloat16", "bfloat16", False, False)
        for tile in (*heuristic.CANDIDATES, *heuristic.K_MAJOR, heuristic.LARGE)
    },
    "transposed": Config(FIRST, "float16", "float16", True, True),
    "float32-with-c": Config(FIRST, "bfloat16", "float32", False, True, with_c=True),
    "float8": Config(FIRST, "float8_e4m3fn", "bfloat16", False, False),
    "tf32": Config(FIRST, "float32", "float32", False, False),
    "large tf32": Config(heuristic.LARGE, "float32", "float32", False, False),
    "large direct": Config(heuristic.LARGE, "bfloat16", "bfloat16", False, True, direct=True),
    "direct": Config(FIRST, "bfloat16", "bfloat16", False, False, direct=True),
}


@pytest.fixture(params=CONFIGS.values(), ids=list(CONFIGS), scope="module")
def plain(request: pytest.FixtureRequest) -> str:
    return assembly(source.text(request.param, source.plain_program(request.param.operand)))


def assembly(text: str) -> str:
    return disassembled(nvrtc.cubin(text, "test"))


@cache
def disassembled(code: bytes) -> str:
    """SASS, by the disassembler that the nvidia-cuda-cuobjdump wheel carries."""
    spec = find_spec("nvidia")
    roots = (spec and spec.submodule_search_locations) or []
    tools = [path for root in roots for path in Path(root).glob("*/bin/cuobjdump")]
    assert tools, "these tests need the wheel nvidia-cuda-cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code)
        file.flush()
        command = [tools[0], "-sass", file.name]
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout


def count(instruction: str, sass: str) -> int:
    return len(re.findall(rf"\b{instruction}\b", sass))


def test_tensor_cores_and_copy_engine_do_the_work(plain: str):
    assert count("HGMMA", plain) + count("QGMMA", plain) >= 4
    assert count("UTMALDG", plain) >= 2
    assert (count("UTMASTG", plain) > 0) != (count("STG", plain) > 0)
    assert count("HMMA", plain) == count("FFMA.FTZ", plain) == 0


def test_registers_move_to_the_consumers(plain: str):
    assert count("USETMAXREG", plain) == 2


def test_mainloop_keeps_to_registers(plain: str):
    # Between its two loops over k-tiles a tile may reload a value, once.
    loops = [part for part in re.split(r"\bBRA\b", plain) if re.search("[HQ]GMMA", part)]
    assert loops
    for loop in loops:
        assert count("LDL", loop) == count("STL", loop) == count("MEMBAR", loop) == 0


@pytest.fixture(scope="module")
def winograd():
    return accumulate(schemes.get("winograd"))


def fused_config() -> Config:
    return Config(FIRST, "bfloat16", "bfloat16", False, False)


@pytest.mark.parametrize("where", ["before", "beside", "first", "both"])
def test_fused_kernel(winograd, where: Where):
    lowered = tables.lower(winograd, "bfloat16", where != "before", where == "first")
    sass = assembly(fused_source.text(fused_config(), lowered, where))
    k_tiles = 2 * (4 + 2)  # of two types: each part of a stored block has one, and two loops have
    assert count("HGMMA", sass) == 4 * k_tiles
    # One k-tile stays in flight: nothing waits for all but the end of a product.
    assert len(re.findall("WARPGROUP.DEPBAR.LE gsb0, 0x1", sass)) == k_tiles
    assert len(re.findall("WARPGROUP.DEPBAR.LE gsb0, 0x0", sass)) == 2
    loops = sass[sass.index("HGMMA") : sass.rindex("HGMMA")]
    # Addresses, one or two to an instruction that multiplies, by NVRTC 13.5; none by 13.0.
    most = 96 if where in ("beside", "both") else 0
    assert count("LDL", loops) <= most
    assert count("STL", loops) <= most // 3


def test_warps_that_combine_have_enough_registers(winograd):
    lowered = tables.lower(winograd, "bfloat16", True)
    sass = assembly(fused_source.text(fused_config(), lowered, "beside"))
    idle = sass[sass.index("USETMAXREG.DEALLOC") :]
    assert count("LDL", idle) <= 16  # of addresses, at items' ends


@pytest.mark.parametrize("name", ["winograd", "accurate"])
def test_schemes_of_float8(name: str):
    lowered = tables.lower(accumulate(schemes.get(name)), "float8_e4m3fn")
    config = Config(FIRST, "float8_e4m3fn", "bfloat16", False, False)
    sass = assembly(fused_source.text(config, lowered))
    # Products of plain blocks, the classical one's too, have another unit, and a loop of their own.
    assert count("QGMMA", sass) == 4 * (4 + 2) * 2
    sass = assembly(planes.text("float8_e4m3fn", 4, tables.sums_of(lowered.a_planes)))
    assert count("LDL", sass) == count("F2F", sass) == 0


def test_accumulator_stays_in_registers_in_a_large_program():
    program = accumulate(schemes.get("laderman"))
    sass = assembly(fused_source.text(fused_config(), tables.lower(program, "bfloat16")))
    loops = sass[sass.index("HGMMA") : sass.rindex("HGMMA")]
    assert count("LDL", loops) == count("STL", loops) == 0


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_small_kernels(winograd, dtype: str):
    sums = tables.sums_of(tables.lower(winograd, dtype).a_planes)
    assert len(sums) == (5 if dtype == "bfloat16" else 4)
    assert count("LDG", assembly(planes.text(dtype, 4, sums))) >= 4
    assert count("LDG", assembly(split.text(dtype))) >= 1


def declared(text: str, size: int, struct: str, kind: str, shared: int) -> None:
    """Compile the assertion of an argument's size, and of shared memory's for ``kind``."""
    layout = f"""
static_assert(sizeof({struct}<{kind}>) == {size});
static_assert(Layout<{kind}>::bytes <= {shared});
extern "C" __global__ void none() {{}}
"""
    nvrtc.cubin(text + layout, "layout")


def test_argument_has_the_layout_that_the_kernel_reads():
    config = CONFIGS["cooperative-128x256"]
    content = Params(
        maps=(TensorMap(128),) * 3, block_rows=0, block_columns=0, tile_columns=0, k_tiles=0,
        cluster_rows=0, cluster_columns=0, batches=0, group=0, a_batch_step=0, b_batch_step=0,
        alpha=0, beta=0,
    ).pack()  # fmt: skip
    text = source.text(config, source.plain_program("bfloat16"))
    shared = config.tile.shared_bytes
    declared(text[: text.index("struct Program")], len(content), "Params", "Config", shared)


@pytest.mark.parametrize(
    ("where", "right"), [("before", False), ("first", False), ("beside", True), ("both", True)]
)
def test_fused_argument_has_the_layout_that_the_kernel_reads(winograd, where, right: bool):
    left = where != "before"
    lowered, config = tables.lower(winograd, "bfloat16", left, right), fused_config()
    maps = 2 + 2 + 4  # operands and their planes, blocks of the output
    combination = bytes(80 + 4 * 8)
    content = SchemeParams(
        (TensorMap(128),) * maps,
        combination if left else nothing(UNITY), combination if right else nothing(UNITY),
        scratch=0, flag=0, block_rows=0, block_columns=0, tile_columns=0,
        k_tiles=0, cluster_rows=0, cluster_columns=0, group=0, first_turn=0, first=NOBODY,
        beside=NOBODY, split=0, alpha=0, plane_scale=1, verdict=bytes(64), arrived=0,
    ).pack()  # fmt: skip
    text = fused_source.text(config, lowered, where)
    shared = fused_source.shared_bytes(config, where)
    assert shared <= SHARED_BYTES
    declared(text[: text.index("extern")], len(content), "SchemeParams", "Scheme", shared)
