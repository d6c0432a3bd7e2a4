"""The catalogue against the published marks."""

from itertools import combinations_with_replacement

import pytest

from tiercel.schemes import find, phi
from tiercel.schemes.marks import MARKS, mark

GRIDS = list(combinations_with_replacement(range(2, 6), 3))

# One product more than the mark; all other grids equal it.
ONE_MORE = {(4, 4, 5)}


@pytest.mark.parametrize("grid", GRIDS)
def test_smallest_rank_meets_the_mark(grid):
    m, k, n = grid
    assert find(m, k, n)[0].rank <= MARKS[grid].rank + (grid in ONE_MORE)


@pytest.mark.parametrize("grid", [grid for grid in GRIDS if max(grid) < 5])
def test_most_accurate_is_better_than_the_mark(grid):
    m, k, n = grid
    least = find(m, k, n)[0].rank
    assert min(phi(x) for x in find(m, k, n) if x.rank == least) <= MARKS[grid].phi


def test_the_accurate_cube_of_three_is_far_below_the_mark():
    scheme = next(x for x in find(3, 3, 3) if x.name.startswith("accurate"))
    assert phi(scheme) < 150 < MARKS[3, 3, 3].phi
    assert all(x.is_power_of_two for x in (scheme.U, scheme.V, scheme.W))


def test_order_does_not_matter():
    assert mark((5, 3, 4)) == MARKS[3, 4, 5]
    assert mark((6, 2, 2)) is None
