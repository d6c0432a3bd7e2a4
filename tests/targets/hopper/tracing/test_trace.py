"""Kernels with a traced epilogue, or with timestamps, compile to what they should be."""

import re
from dataclasses import replace

import pytest

from tests.targets.hopper.products.test_compile import FIRST, assembly, count
from tiercel.lower.epilogue import Array, bind, library
from tiercel.lower.epilogue.cuda.params import params_dtype
from tiercel.targets.hopper import source
from tiercel.targets.hopper.config import Config
from tiercel.targets.hopper.epilogues.epilogue import (
    Staged,
    epilogue_text,
    fitted,
    staged_outputs,
    with_fours,
    with_operand,
)
from tiercel.targets.hopper.epilogues.tile import WIDE, WIDEST
from tiercel.targets.hopper.launching import compile as nvrtc
from tiercel.targets.hopper.products import classical, heuristic

M, N = 512, 768
HALF = "bfloat16"
OPERANDS = {
    "gelu": {},
    "swiglu": {},
    "rope": {"cos": Array((M, 64)), "sin": Array((M, 64))},
    "residual_rms": {"residual": Array((M, N), HALF), "gamma": Array((N,), HALF)},
    "cross_entropy": {"target": Array((M, 1), "int64")},
}


def bound(name: str):
    return bind(getattr(library, name), (M, N), OPERANDS[name], dtype=HALF)


def text(name: str, tile=FIRST, whole: bool = False, brings: bool = True) -> str:
    instance = bound(name)
    staged = staged_outputs(instance, N)
    staged = with_fours(staged, instance, OPERANDS[name])
    if brings:
        tile, staged = fitted(tile, with_operand(staged, instance, OPERANDS[name]))
    epilogue = epilogue_text(instance, staged, whole)
    operand = staged.operand_bytes(tile) if staged else 0
    closes = tile.schedule == "cooperative" and name in ("residual_rms", "cross_entropy")
    config = Config(tile, HALF, HALF, False, False, operand_bytes=operand, closes=closes)
    return source.text(config, classical.program(config), epilogue)


@pytest.mark.parametrize("name", OPERANDS)
def test_hardly_anything_leaves_the_registers(name: str):
    sass = assembly(text(name))
    loop = re.search(r"HGMMA.*HGMMA[^\n]*\n", sass, re.DOTALL)
    assert loop is not None
    assert count("LDL", loop[0]) == count("STL", loop[0]) == 0
    # A wait for each k-tile, not behind each instruction: of those multiplied by both consumers at
    # once, before and after an operand is asked for, and of the last ones, which consumer 1
    # multiplies alone.
    assert len(re.findall(r"HGMMA[^\n]*gsb0", sass)) == (3 if name == "residual_rms" else 2)
    instructions = len(re.findall(r"/\*[0-9a-f]{4,}\*/ +[@A-Z]", sass))
    assert count("LDL", sass) + count("STL", sass) <= 0.06 * instructions


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("name", OPERANDS)
def test_products_find_their_descriptors_in_registers_of_the_warp(name: str, whole: bool):
    """What ptxas takes for different in each thread is copied before each product: R2UR."""
    sass = assembly(text(name, heuristic.CANDIDATES[1], whole))
    loop = re.search(r"HGMMA.*HGMMA[^\n]*\n", sass, re.DOTALL)
    assert loop is not None
    assert count("R2UR", loop[0]) == 0
    if whole:
        assert count("STL", sass) <= 8


@pytest.mark.parametrize(
    ("name", "tile"),
    [("gelu", WIDE), ("residual_rms", WIDE), ("rope", WIDE), ("gelu", WIDEST), ("swiglu", WIDEST),
     ("cross_entropy", WIDEST)],
)  # fmt: skip
def test_wider_tiles_have_registers_for_what_they_are_chosen_for(name: str, tile):
    sass = assembly(text(name, tile, whole=tile == WIDEST))
    assert count("STL", sass) <= 24


@pytest.mark.parametrize("tile", heuristic.CANDIDATES, ids=str)
def test_a_pair_map_stores_whole_subtiles_of_its_own_columns(tile):
    """Tiles of 64 and 192 columns make 32 and 96: no multiple of the 64 of a whole subtile."""
    instance = bound("swiglu")
    staged = staged_outputs(instance, N)
    assert staged is not None
    layout = f"static_assert(Store<Config>::pitch == {staged.span(tile)});\n"
    nvrtc.cubin(text("swiglu", tile) + layout, "layout")
    assert tile.n // 2 * 2 % staged.span(tile) == 0


def test_outputs_of_one_kind_are_stored_by_the_copy_engine():
    instance = bound("residual_rms")
    staged = staged_outputs(instance, N)
    assert staged is not None
    assert [x.name for x in staged.outputs] == ["out", "hidden"]
    assert count("UTMASTG", assembly(text("residual_rms"))) == 2 * FIRST.n // 64
    assert staged_outputs(bound("cross_entropy"), N) is None
    # Rows of 12 bytes: TMA needs 16.
    assert staged_outputs(instance, 6) is None


@pytest.mark.parametrize("tile", [heuristic.CANDIDATES[1], WIDE], ids=str)
def test_an_operand_of_a_tile_is_brought_by_the_copy_engine(tile):
    brought, loaded = (
        assembly(text("residual_rms", tile, whole=True, brings=x)) for x in (True, False)
    )
    values = tile.accumulators // 2  # pairs of a thread
    assert count("LDSM", brought) == values // 4
    assert count("LDSM", loaded) == 0
    assert count("LDG", loaded) - count("LDG", brought) == values
    assert count("STL", brought) <= count("STL", loaded)


def test_an_operand_may_cost_stages():
    instance = bound("residual_rms")
    staged = with_operand(staged_outputs(instance, N), instance, OPERANDS["residual_rms"])
    assert staged is not None
    assert staged.operand == "residual"
    for tile in (*heuristic.CANDIDATES[1:], WIDE):
        assert fitted(tile, staged) == (tile, staged)
    wide, large = heuristic.CANDIDATES[0], heuristic.LARGE
    assert fitted(wide, staged) == (replace(wide, stages=3), staged)
    assert fitted(large, staged) == (large, replace(staged, operand=""))


@pytest.mark.parametrize(
    "operand",
    [
        Array((M, N), HALF, (N + 2, 1)),
        Array((M, N), HALF, (N, 1), address=4),
        Array((M, N), HALF, (1, M)),
        Array((M, N), "float32"),
    ],
    ids=["stride", "address", "transposed", "32 bits"],
)
def test_other_operands_are_loaded_by_threads(operand):
    operands = {"residual": operand}
    instance = bind(library.residual, (M, N), operands, dtype=HALF)
    staged = with_operand(staged_outputs(instance, N), instance, operands)
    assert staged is not None
    assert staged.operand == ""


def test_a_pair_map_is_stored_alone():
    staged = staged_outputs(bound("swiglu"), N)
    assert staged is not None
    assert isinstance(staged, Staged)
    assert (staged.shrink, len(staged.outputs)) == (1, 1)


@pytest.mark.parametrize("name", ["residual_rms", "cross_entropy", "rope"])
def test_argument_has_the_layout_that_the_kernel_reads(name: str):
    size = params_dtype(bound(name)).itemsize
    layout = f"""
using Argument = Config::Epilogue::Params;
static_assert(sizeof(tiercel::Epilogue::Params) == {size});
static_assert(sizeof(Argument) == 16 + {size});
"""
    nvrtc.cubin(text(name) + layout, "layout")


@pytest.mark.parametrize("tile", heuristic.CANDIDATES[:2], ids=str)
def test_only_a_traced_kernel_reads_the_clock(tile):
    config = Config(tile, HALF, HALF, False, False)
    program = source.plain_program(HALF)
    plain = assembly(source.text(config, program))
    traced = assembly(source.text(replace(config, traced=True), program))
    assert "SR_CLOCK" not in plain
    assert len(re.findall("SR_CLOCK", traced)) >= 10
    assert count("HGMMA", traced) == count("HGMMA", plain)


def test_four_lanes_load_a_table_for_each_other():
    instance = bound("rope")
    staged = staged_outputs(instance, N)
    whole = with_fours(staged, instance, OPERANDS["rope"])
    assert whole is not None
    assert whole.fours == ("cos", "sin")
    config = Config(FIRST, HALF, HALF, False, False)
    counts = [
        count("LDG", assembly(source.text(config, classical.program(config), epilogue)))
        for epilogue in (epilogue_text(instance, x, True) for x in (staged, whole))
    ]
    values = 2 * FIRST.accumulators // 2  # of two tables, one for each pair
    assert counts[0] - counts[1] == values * 3 // 4


@pytest.mark.parametrize(
    "array",
    [Array((M, 64), address=8), Array((M, 64), strides=(66, 1)), Array((M, 64), HALF),
     Array((M, 16))],
    ids=["address", "stride", "dtype", "period"],
)  # fmt: skip
def test_other_tables_are_loaded_by_each_lane(array: Array):
    operands = {"cos": array, "sin": array}
    instance = bind(library.rope, (M, N), operands, dtype=HALF)
    staged = with_fours(staged_outputs(instance, N), instance, operands)
    assert staged is not None
    assert staged.fours == ()


def test_rows_of_cooperative_tiles_are_completed_by_idle_warps():
    """Who waits for others' memory is a warp without a tile, but for a consumer's last one."""
    counts = {
        tile.schedule: count("ATOMG", assembly(text("residual_rms", tile, whole=True)))
        for tile in (FIRST, WIDE)
    }
    assert counts["cooperative"] == 2 * counts["pingpong"]
