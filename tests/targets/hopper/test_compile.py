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
from tiercel.lower.accumulator import Cost, accumulate
from tiercel.lower.epilogue import Array, bind, library
from tiercel.targets.hopper import compile as nvrtc
from tiercel.targets.hopper import fused, heuristic, planes, source, split
from tiercel.targets.hopper.config import Config, Tile
from tiercel.targets.hopper.epilogue import epilogue_text, staged_output
from tiercel.targets.hopper.params import Params

FIRST = heuristic.CANDIDATES[0]
CONFIGS = {
    **{
        f"{tile.schedule}-{tile.m}x{tile.n}": Config(tile, "bfloat16", "bfloat16", False, False)
        for tile in heuristic.CANDIDATES
    },
    "transposed": Config(FIRST, "float16", "float16", True, True),
    "float32-with-c": Config(FIRST, "bfloat16", "float32", False, True, with_c=True),
    "float8": Config(FIRST, "float8_e4m3fn", "bfloat16", False, False),
    "tf32": Config(FIRST, "float32", "float32", False, False),
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
    loop = re.search(r"[HQ]GMMA.*[HQ]GMMA[^\n]*\n", plain, re.DOTALL)
    assert loop is not None
    assert count("LDL", loop[0]) == count("STL", loop[0]) == 0
    assert count("MEMBAR", loop[0]) == 0


@pytest.fixture(scope="module")
def winograd():
    return accumulate(schemes.get("winograd"), cost=Cost(registers=1))


def fused_config(blocks: int) -> Config:
    tile = Tile(128, 256, 3 if blocks else 4, "cooperative", 2, 1, blocks)
    return Config(tile, "bfloat16", "bfloat16", False, False)


@pytest.mark.parametrize("inside", [False, True])
def test_fused_kernel(winograd, inside: bool):
    lowered = fused.lower(winograd, "bfloat16", inside)
    sass = assembly(source.text(fused_config(4 if inside else 0), lowered.kernel))
    assert count("HGMMA", sass) == 4 * winograd.multiplies
    for loop in re.findall(r"HGMMA[^\n]*UP0.*?gsb0", sass, re.DOTALL):
        assert count("LDL", loop) == count("STL", loop) == 0


@pytest.mark.parametrize("name", ["swiglu", "residual_rms"])
def test_epilogues_need_no_local_memory(name: str):
    row, whole = Array((512,), "bfloat16"), Array((512, 512), "bfloat16")
    operands = {"swiglu": {}, "residual_rms": {"residual": whole, "gamma": row}}[name]
    instance = bind(getattr(library, name), (512, 512), operands, dtype="bfloat16")
    epilogue = epilogue_text(instance, staged_output(instance, 512))
    config = CONFIGS["cooperative-128x256"]
    sass = assembly(source.text(config, source.plain_program("bfloat16"), epilogue))
    assert count("LDL", sass) == count("STL", sass) == 0


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_small_kernels(winograd, dtype: str):
    sums = fused.sums_of(fused.lower(winograd, dtype).a_planes)
    assert len(sums) == (5 if dtype == "bfloat16" else 4)
    assert count("LDG", assembly(planes.text(dtype, 4, sums))) >= 4
    assert count("LDG", assembly(split.text(dtype))) >= 1


@pytest.mark.parametrize("blocks", [1, 4])
def test_argument_has_the_layout_that_the_kernel_reads(blocks: int, winograd):
    lowered = fused.lower(winograd, "bfloat16", inside=blocks > 1)
    program = lowered.kernel if blocks > 1 else source.plain_program("bfloat16")
    config = fused_config(blocks if blocks > 1 else 0)
    maps = program.a_planes + program.b_planes + program.d_blocks
    content = Params(
        maps=(bytes(128),) * maps, block_rows=0, block_columns=0, tile_columns=0, k_tiles=0,
        cluster_rows=0, cluster_columns=0, batches=0, group=0, a_batch_step=0, b_batch_step=0,
        alpha=0, beta=0, combination=bytes(64 + 8 * blocks),
    ).pack()  # fmt: skip
    text = source.text(config, program)
    layout = f"""
static_assert(sizeof(Params<Config>) == {len(content)});
static_assert(Layout<Config>::bytes <= {config.tile.shared_bytes});
extern "C" __global__ void none() {{}}
"""
    nvrtc.cubin(text[: text.index("struct Program")] + layout, "layout")
