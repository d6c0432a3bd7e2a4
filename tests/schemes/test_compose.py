"""Tensor products multiply grids and ranks; sums along a dimension add them; projections cut."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiercel.errors import TiercelValueError
from tiercel.schemes import (
    classical,
    concatenate,
    extend,
    get,
    phi,
    project,
    stability_factor,
    tensor,
)

small_scheme = st.sampled_from(("strassen", "winograd", "accurate", "strassen-3x2x2")).map(get)
scheme_to_cut = st.sampled_from(("accurate", "laderman", "hopcroft-kerr-4x3x2", "strassen2"))
size = st.integers(1, 3)
axis_name = st.sampled_from("mkn")


@given(size, size, size)
def test_classical_has_one_product_per_triple(m, k, n):
    scheme = classical(m, k, n)
    assert scheme.rank == phi(scheme) == m * k * n
    assert stability_factor(scheme) == k
    assert scheme.additions == m * n * (k - 1)


@settings(deadline=None, max_examples=30)
@given(small_scheme, st.builds(classical, size, size, size))
def test_tensor_multiplies_everything(multiplies, outer, inner):
    both = tensor(outer, inner)
    assert multiplies(both)
    assert both.grid == tuple(a * b for a, b in zip(outer.grid, inner.grid, strict=True))
    assert both.rank == outer.rank * inner.rank
    assert phi(both) == phi(outer) * phi(inner)
    assert stability_factor(both) == stability_factor(outer) * stability_factor(inner)


def test_tensor_puts_inner_blocks_inside_outer_blocks():
    both = tensor(classical(2, 1, 1), classical(1, 3, 1))
    # Product (r_outer, r_inner) = (1, 2) reads A[1·1 + 0, 0·3 + 2].
    assert np.flatnonzero(both.U.numerators[1 * 3 + 2]).tolist() == [1 * 3 + 2]
    assert np.flatnonzero(both.W.numerators[1 * 3 + 2]).tolist() == [1]


def test_tensor_is_exact_with_fractions_and_associative(multiplies):
    accurate, rectangular = get("accurate"), get("hopcroft-kerr-2x3x3")
    assert multiplies(tensor(accurate, rectangular))
    small = classical(1, 2, 1)
    assert tensor(tensor(accurate, small), small) == tensor(accurate, tensor(small, small))


@settings(deadline=None, max_examples=25)
@given(small_scheme, axis_name, st.lists(size, max_size=2))
def test_concatenation_multiplies(multiplies, scheme, axis, sizes):
    grid = {letter: getattr(scheme, letter) for letter in "mkn"}
    parts = [scheme, *(classical(**grid | {axis: more}) for more in sizes)]
    whole = concatenate(*parts, axis=axis)
    assert whole.grid == tuple((grid | {axis: grid[axis] + sum(sizes)}).values())
    assert whole.rank == sum(part.rank for part in parts)
    assert phi(whole) == sum(map(phi, parts))
    assert multiplies(whole)


@pytest.mark.parametrize("axis", ["m", "k", "n"])
def test_concatenation_adds_along_its_axis(axis, multiplies):
    scheme = concatenate(get("accurate"), get("strassen"), get("winograd"), axis=axis)
    expected = dict.fromkeys("mkn", 2) | {axis: 6}
    assert scheme.grid == tuple(expected.values())
    assert scheme.rank == 21
    assert multiplies(scheme)


@pytest.mark.parametrize(("axis", "m", "k", "n"), [("m", 1, 3, 2), ("k", 3, 1, 2), ("n", 3, 3, 3)])
def test_classical_parts_make_the_classical_sum(axis, m, k, n):
    parts = [classical(m, k, n), classical(m, k, n)]
    whole = concatenate(*parts, axis=axis)
    assert phi(whole) == 2 * m * k * n
    assert whole.rank == 2 * m * k * n


@settings(deadline=None, max_examples=25)
@given(scheme_to_cut.map(get), axis_name, st.data())
def test_projection_multiplies_and_is_no_larger(multiplies, scheme, axis, data):
    cut = getattr(scheme, axis)
    smaller = project(scheme, axis, data.draw(st.integers(0, cut - 1)))
    assert multiplies(smaller)
    wanted = {letter: getattr(scheme, letter) for letter in "mkn"} | {axis: cut - 1}
    assert smaller.grid == tuple(wanted.values())
    assert smaller.rank <= scheme.rank


@settings(deadline=None, max_examples=25)
@given(small_scheme, axis_name, size)
def test_extension_multiplies_and_is_undone_by_projection(multiplies, scheme, axis, more):
    larger = extend(scheme, axis, getattr(scheme, axis) + more)
    assert multiplies(larger)
    for _ in range(more):
        larger = project(larger, axis, getattr(larger, axis) - 1)
    assert larger == scheme


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: concatenate(classical(1, 1, 1), axis="r"), "axis must be"),
        (lambda: concatenate(axis="m"), "at least one"),
        (lambda: extend(classical(1, 2, 1), "k", 2), "larger"),
        (lambda: project(classical(1, 2, 1), "m", 0), "at least two"),
        (lambda: project(classical(1, 2, 1), "k", 2), "from 0 to 1"),
        (lambda: project(classical(1, 2, 1), "r", 0), "axis must be"),
        (lambda: concatenate(classical(1, 2, 1), classical(1, 1, 1), axis="m"), r"k: .*\[2, 1\]"),
    ],
)
def test_misuse_is_refused(call, message):
    with pytest.raises(TiercelValueError, match=message):
        call()
