"""The choice of a tile for a traced epilogue, on paper."""

import pytest

from tiercel.lower.epilogue import Array, bind, library
from tiercel.targets.hopper.epilogues.tile import WIDE, WIDEST, choose, cycles_per_element
from tiercel.targets.hopper.products import heuristic

SMS = 132


def bound(name: str, M: int, N: int):
    operands = {
        "residual": {"residual": Array((M, N), "bfloat16")},
        "cross_entropy": {"target": Array((M, 1), "int64")},
    }.get(name, {})
    return bind(getattr(library, name), (M, N), operands, dtype="bfloat16")


def test_a_cheap_epilogue_of_a_long_product_takes_the_fastest_mainloop():
    tile = choose(bound("relu", 8192, 8192), 8192, 8192, 16384, 1, SMS)
    assert tile == heuristic.CANDIDATES[0]


def test_a_dear_epilogue_of_a_short_product_is_hidden():
    tile = choose(bound("cross_entropy", 8192, 32768), 8192, 32768, 2048, 1, SMS)
    assert tile.schedule == "pingpong"


@pytest.mark.parametrize(
    ("dearer", "cheaper"),
    [("gelu", "swiglu"), ("swiglu", "relu"), ("residual", "relu"), ("cross_entropy", "residual")],
)
def test_costs_are_in_order(dearer: str, cheaper: str):
    assert cycles_per_element(bound(dearer, 64, 64)) > cycles_per_element(bound(cheaper, 64, 64))


def test_wider_tiles_need_registers_and_layouts_that_allow_them():
    shape = 2048, 14336, 4096, 1, SMS
    assert choose(bound("residual", *shape[:2]), *shape) == WIDE
    assert choose(bound("residual", *shape[:2]), *shape, k_major=False) != WIDE
    assert choose(bound("cross_entropy", 8192, 128256), 8192, 128256, 4096, 1, SMS) == WIDEST
    assert choose(bound("cross_entropy", 8192, 128260), 8192, 128260, 4096, 1, SMS) != WIDEST
    assert choose(bound("rms_statistics", 8192, 8192), 8192, 8192, 8192, 1, SMS) == WIDEST


def test_a_cooperative_tile_does_not_wait_for_an_operand_that_is_brought():
    shape = 2048, 4096, 14336
    instance = bound("residual", *shape[:2])
    assert choose(instance, *shape, 1, SMS).schedule == "pingpong"
    assert choose(instance, *shape, 1, SMS, brought="residual") == heuristic.CANDIDATES[0]
