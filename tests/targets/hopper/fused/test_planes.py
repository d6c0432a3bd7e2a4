"""Where the kernel finds the planes of an operand."""

import pytest

from tiercel import schemes
from tiercel.lower.accumulator import accumulate
from tiercel.targets.hopper.fused import planes, tables
from tiercel.targets.hopper.operands.operand import Matrix

WINOGRAD = tables.lower(accumulate(schemes.get("winograd")), "bfloat16", left=True)


@pytest.mark.parametrize("transposed", [False, True])
def test_written_planes_lie_below_one_another_and_blocks_where_they_are(transposed: bool):
    found = planes.places(WINOGRAD.a_planes, (2, 2), transposed)
    written = [place for x, place in zip(WINOGRAD.a_planes, found, strict=True) if x.written]
    assert written == [(1, 0, i) for i in range(5)]
    for x, place in zip(WINOGRAD.a_planes, found, strict=True):
        if not x.written:
            row, column = divmod(x.plane.terms[0][0], 2)
            assert place == ((0, row, column) if transposed else (0, column, row))


@pytest.mark.parametrize("transposed", [False, True])
def test_two_arrays_hold_all_planes(transposed: bool, monkeypatch):
    made = []
    monkeypatch.setattr(
        "tiercel.targets.hopper.operands.operand.tensor_map", lambda *given: made.append(given)
    )
    view = Matrix(4096, "bfloat16", 512, 384, 400, 1)
    grid = planes.grid_of(view, "a", (2, 2), transposed)
    planes.tensor_maps(grid, WINOGRAD.a_planes, 8192, 128)
    # column, block across, row, block down: strides in bytes
    operand, written = made
    assert operand == ("bfloat16", 4096, (192, 2, 256, 2), (384, 800, 204800), (64, 1, 128, 1))
    assert written == ("float16", 8192, (192, 1, 256, 5), (384, 384, 98304), (64, 1, 128, 1))
