"""Kernels whose threads hold 8 adjacent columns, not pairs 8 columns apart."""

import re

import pytest

from tests.targets.hopper.products.test_compile import FIRST, assembly, count
from tests.targets.hopper.tracing.test_trace import HALF, OPERANDS, M, N, bound
from tiercel.lower.epilogue import Array, bind, library
from tiercel.targets.hopper import source
from tiercel.targets.hopper.config import Config
from tiercel.targets.hopper.epilogues.epilogue import (
    epilogue_text,
    fits_neighbours,
    staged_outputs,
    with_eights,
    with_fours,
)
from tiercel.targets.hopper.epilogues.tile import WIDE
from tiercel.targets.hopper.products import classical, heuristic


def text(name: str, eights: bool = True) -> str:
    instance = bound(name)
    staged = staged_outputs(instance, N)
    with_many = with_eights(staged, instance, OPERANDS[name], N)
    staged = with_many if eights else with_fours(staged, instance, OPERANDS[name])
    assert staged is not None
    closes = name == "residual_rms"
    config = Config(FIRST, HALF, HALF, False, False, closes=closes, neighbours=staged.neighbours)
    return source.text(
        config, classical.program(config), epilogue_text(instance, staged, True, True)
    )


@pytest.mark.parametrize("name", ["rope", "residual_rms"])
def test_rows_of_b_come_in_another_order(name: str):
    sass = assembly(text(name))
    assert count("UTMALDG.5D", sass) > 0
    assert count("UTMALDG.5D", assembly(text(name, eights=False))) == 0
    loop = re.search(r"HGMMA.*HGMMA[^\n]*\n", sass, re.DOTALL)
    assert loop is not None
    assert count("LDL", loop[0]) == count("STL", loop[0]) == 0
    # One wait for the k-tiles that both consumers multiply, one for the last ones.
    assert len(re.findall(r"HGMMA[^\n]*gsb0", sass)) == 2


@pytest.mark.parametrize("name", ["rope", "residual_rms"])
def test_operands_and_outputs_are_accessed_16_bytes_at_a_time(name: str):
    wide, narrow = assembly(text(name)), assembly(text(name, eights=False))
    outputs = len(bound(name).outputs)
    assert count("STS.128", wide) == outputs * FIRST.accumulators // 8
    assert count("LDG.E.128", wide) >= 16
    assert count("LDG", wide) < count("LDG", narrow)
    if name == "rope":  # whose values four lanes exchange otherwise
        assert count("SHFL", wide) < 4 < count("SHFL", narrow)


def test_a_table_of_128_columns_serves_the_whole_tile():
    """Its values for the first half of a tile's columns are loaded once: 64 registers."""
    staged = with_eights(staged_outputs(bound("rope"), N), bound("rope"), OPERANDS["rope"], N)
    assert staged is not None
    assert (staged.eights, staged.period) == (("cos", "sin"), 128)
    assert count("LDG.E.128", assembly(text("rope"))) == 16
    long = {"cos": Array((M, 128)), "sin": Array((M, 128))}
    instance = bind(library.rope, (M, N), long, dtype=HALF)
    staged = with_eights(staged_outputs(instance, N), instance, long, N)
    assert staged is not None
    assert staged.period == 256


@pytest.mark.parametrize(
    "array",
    [Array((M, N), HALF, (N + 2, 1)), Array((M, N), HALF, address=8), Array((M, N), HALF, (1, M)),
     Array((M, N))],
    ids=["stride", "address", "transposed", "32 bits"],
)  # fmt: skip
def test_without_such_an_operand_of_tiles_the_order_stays(array: Array):
    operands = {"residual": array, "gamma": Array((N,), HALF)}
    instance = bind(library.residual_rms, (M, N), operands, dtype=HALF)
    assert with_eights(staged_outputs(instance, N), instance, operands, N) is None


def test_groups_of_32_columns_are_needed():
    instance = bind(library.residual_rms, (M, N - 8), _residual(N - 8), dtype=HALF)
    assert with_eights(staged_outputs(instance, N - 8), instance, _residual(N - 8), N - 8) is None
    pairs = bound("swiglu")
    assert with_eights(staged_outputs(pairs, N), pairs, OPERANDS["swiglu"], N) is None


def test_cooperative_tiles_that_a_cluster_divides_into_groups_are_stored_so():
    able = [x for x in (*heuristic.CANDIDATES, heuristic.LARGE, WIDE) if fits_neighbours(x)]
    assert able == [FIRST, heuristic.CANDIDATES[2]]


def _residual(columns: int) -> dict[str, Array]:
    return {"residual": Array((M, columns), HALF), "gamma": Array((columns,), HALF)}
