"""Starts are schemes of the wanted grid, best first."""

import numpy as np
import pytest

from tiercel.schemes import classical, get
from tiercel.schemes.search.node import to_scheme, unpack
from tiercel.schemes.search.starts import Start, begin, fits, starts


@pytest.mark.parametrize("grid", [(2, 2, 2), (3, 2, 4), (1, 3, 2), (4, 4, 3)])
def test_starts_are_exact_and_sorted(grid):
    found = starts(grid, "ternary")
    ranks = [start.rank for start in found]
    assert ranks == sorted(ranks)
    for start in found:
        node = begin(start, grid, "ternary", np.random.default_rng(1))
        assert node.rank <= start.rank
        assert to_scheme(grid, unpack(node)).grid == grid  # verified when built


def test_parts_wander_before_they_are_joined():
    start = starts((2, 2, 4), "ternary", [get("strassen")], catalogue=False)[0]
    first, other = (
        begin(start, (2, 2, 4), "ternary", np.random.default_rng(seed)) for seed in (1, 2)
    )
    assert first.rank == other.rank == 14
    assert not np.array_equal(first.words, other.words)


@pytest.mark.parametrize("ring", ["mod2", "ternary"])
def test_classical_parts_go_down_before_they_are_joined(ring):
    start = Start((classical(2, 2, 2), classical(2, 2, 2)), axis=2)
    assert begin(start, (2, 2, 4), ring, np.random.default_rng(1)).rank == 14


def test_without_the_catalogue_only_classical_parts():
    assert {start.rank for start in starts((2, 2, 3), "mod2", catalogue=False)} == {12}


def test_a_known_neighbour_is_extended():
    found = starts((3, 3, 4), "mod2", [get("laderman")], catalogue=False)
    assert found[0].rank == 23 + 9


def test_a_known_scheme_is_turned_to_the_grid():
    found = starts((3, 2, 2), "ternary", [get("strassen-2x2x3")], catalogue=False)
    assert found[0].rank == 11


def test_a_larger_neighbour_is_projected():
    found = starts((3, 3, 2), "ternary", [get("laderman")], catalogue=False)
    assert found[0].rank < classical(3, 3, 2).rank


def test_fractions_fit_no_ring():
    assert fits(get("strassen"), "ternary")
    assert not fits(get("accurate"), "mod2")
