"""Symmetries and scalings keep a scheme a scheme, and undo as the mathematics says."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tiercel.errors import TiercelValueError
from tiercel.schemes import (
    RationalMatrix,
    Scheme,
    canonical,
    change_basis,
    equivalent,
    get,
    names,
    normalise,
    orient,
    permute_products,
    phi,
    rational,
    rotate,
    scale_products,
    transpose,
)
from tiercel.schemes.rational import inverse

some_scheme = st.sampled_from([get(x) for x in names() if max(get(x).grid) <= 4])
small = st.fractions(max_denominator=3, min_value=-2, max_value=2)


@st.composite
def invertible(draw: st.DrawFn, size: int) -> RationalMatrix:
    """A product of a lower and an upper triangle without zeros on their diagonals."""
    unit = st.sampled_from([1, -1, 2, Fraction(1, 2)])

    def triangle(inside: Callable[[int, int], bool]) -> np.ndarray:
        places = [[(i, j) for j in range(size)] for i in range(size)]
        return rational(
            [
                [draw(unit) if i == j else draw(small) if inside(i, j) else 0 for i, j in row]
                for row in places
            ]
        ).fractions()

    return rational(triangle(int.__gt__) @ triangle(int.__lt__))


@settings(deadline=None, max_examples=20)
@given(some_scheme)
def test_rotations_and_transposition_form_the_group_of_six(scheme):
    assert rotate(rotate(rotate(scheme))) == scheme
    assert transpose(transpose(scheme)) == scheme
    assert transpose(rotate(transpose(rotate(scheme)))) == scheme
    assert phi(rotate(scheme)) == phi(transpose(scheme)) == phi(scheme)


@settings(deadline=None, max_examples=15)
@given(st.sampled_from(("strassen", "accurate", "laderman")).map(get), st.randoms())
def test_equivalent_sees_through_symmetry_scale_and_order(scheme, random):
    order = list(range(scheme.rank))
    random.shuffle(order)
    other = permute_products(rotate(transpose(scheme)), order)
    other = scale_products(other, [-2] * scheme.rank, [1] * scheme.rank)
    assert equivalent(scheme, other)
    assert not equivalent(scheme, get("winograd"))
    assert not equivalent(scheme, get("sparse-3x3x3"))


@settings(deadline=None, max_examples=40)
@given(some_scheme, st.sampled_from([rotate, transpose, normalise, canonical]))
def test_transform_multiplies(multiplies, scheme, transform):
    assert multiplies(transform(scheme))


@settings(deadline=None, max_examples=25)
@given(some_scheme, st.data())
def test_orient_reaches_all_orders(multiplies, scheme, data):
    grid = tuple(data.draw(st.permutations(scheme.grid)))
    oriented = orient(scheme, *grid)
    assert oriented.grid == grid
    assert oriented.rank == scheme.rank
    assert phi(oriented) == phi(scheme)
    assert multiplies(oriented)


def test_orient_leaves_alone_and_refuses():
    scheme = get("hopcroft-kerr-2x3x4")
    assert orient(scheme, 2, 3, 4) is scheme
    with pytest.raises(TiercelValueError, match="reordering"):
        orient(scheme, 2, 3, 5)


@settings(deadline=None, max_examples=25)
@given(some_scheme, st.randoms())
def test_canonical_forgets_order_signs_and_scales(scheme, random):
    order = list(range(scheme.rank))
    random.shuffle(order)
    factors = [Fraction(random.choice([-2, -1, 1, 3]), 2) for _ in order]
    changed = scale_products(permute_products(scheme, order), factors, factors[::-1])
    assert canonical(changed) == canonical(scheme)
    assert phi(changed) == phi(scheme)


def leading(scheme: Scheme) -> list[set[Fraction]]:
    """The first non-zero coefficients of the rows of U and of V."""
    return [
        {next(x for x in row if x) for row in factor.fractions()} for factor in (scheme.U, scheme.V)
    ]


@settings(deadline=None, max_examples=25)
@given(some_scheme, small.filter(bool), small.filter(bool))
def test_normalise_leads_with_one(scheme, left, right):
    scaled = scale_products(scheme, [left] * scheme.rank, [right] * scheme.rank)
    assert leading(normalise(scaled)) == [{1}, {1}]
    assert normalise(scaled) == normalise(scheme)


def test_normalise_by_powers_of_two_leads_within_one_and_two():
    scaled = scale_products(get("strassen"), [-3] * 7, [Fraction(5, 48)] * 7)
    assert leading(normalise(scaled, leading="power-of-two")) == [
        {Fraction(3, 2)},
        {Fraction(5, 3)},
    ]


@settings(deadline=None, max_examples=40)
@given(st.lists(small, min_size=12, max_size=12))
def test_change_of_basis_is_exact_and_undone_by_its_inverse(entries):
    bases = [rational([entries[i : i + 2], entries[i + 2 : i + 4]]) for i in (0, 4, 8)]
    assume(all(x[0, 0] * x[1, 1] != x[0, 1] * x[1, 0] for x in bases))
    scheme = get("strassen")
    there = change_basis(scheme, *bases)
    assert change_basis(there, *(inverse(x) for x in bases)) == scheme


@settings(deadline=None, max_examples=15)
@given(st.sampled_from(("laderman", "hopcroft-kerr-2x3x4", "accurate")).map(get), st.data())
def test_change_of_basis_multiplies(multiplies, scheme, data):
    bases = [data.draw(invertible(size)) for size in scheme.grid]
    there = change_basis(scheme, *bases)
    assert multiplies(there)
    assert there.rank == scheme.rank
    assert change_basis(there, *map(inverse, bases)) == scheme


def test_orthogonal_bases_keep_phi():
    rotation = [["3/5", "4/5"], ["-4/5", "3/5"]]
    swap = [[0, 1], [1, 0]]
    assert phi(change_basis(get("winograd"), rotation, swap, rotation)) == 56


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: permute_products(s, [0] * 7), "each of the 7"),
        (lambda s: scale_products(s, [1] * 6, [1] * 7), "7 non-zero"),
        (lambda s: scale_products(s, [1] * 7, [0] * 7), "non-zero"),
        (
            lambda s: normalise(s, leading="two"),  # pyright: ignore[reportArgumentType]
            "leading must be",
        ),
        (lambda s: change_basis(s, [[1]], [[1]], [[1]]), "P must be 2 x 2"),
        (lambda s: change_basis(s, [[1, 1], [1, 1]], [[1, 0], [0, 1]], [[1, 0], [0, 1]]), "inver"),
    ],
)
def test_misuse_is_refused(call, message):
    with pytest.raises(TiercelValueError, match=message):
        call(get("strassen"))
