"""Exact matrices: what is accepted, what is refused, and the inverse."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.schemes.rational import inverse, rational

fractions = st.fractions(max_denominator=12, min_value=-20, max_value=20)


def matrices(rows: int, columns: int) -> st.SearchStrategy[list[list[Fraction]]]:
    return st.lists(
        st.lists(fractions, min_size=columns, max_size=columns), min_size=rows, max_size=rows
    )


@given(matrices(2, 3))
def test_values_survive_exactly(values):
    exact = rational(values)
    assert exact.fractions().tolist() == values
    assert exact[1, 2] == values[1][2]
    assert rational([[str(x) for x in row] for row in values]) == exact
    np.testing.assert_allclose(np.asarray(exact), np.array(values, dtype=float), rtol=1e-15)


def test_lowest_terms_make_equal_values_equal():
    assert rational([[2, 4]]) == rational(np.array([[2.0, 4.0]]))
    half = rational([["2/4", 1]])
    assert (half.denominator, half.numerators.tolist()) == (2, [[1, 2]])
    assert hash(half) == hash(rational([[0.5, 1]]))
    assert rational([[0, 0]]) != rational([[0], [0]])


def test_numerators_are_read_only():
    with pytest.raises(ValueError, match="read-only"):
        rational([[1]]).numerators[0, 0] = 2


def test_power_of_two_is_recognised():
    assert rational([["1/4", -2, 0]]).is_power_of_two
    assert not rational([[3, 1]]).is_power_of_two
    assert not rational([["1/3", 1]]).is_power_of_two


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, 2], "two-dimensional"),
        ([[]], "non-empty"),
        ([[1, 2], [3]], "different lengths"),
        ([["x"]], "'x'"),
        ([["1/0"]], "'1/0'"),
        ([[float("nan")]], "nan"),
        ([[2**70]], "int64"),
        ([[Fraction(1, 2**40), Fraction(1, 3**40)]], "int64"),
    ],
)
def test_bad_values_are_refused(values, message):
    with pytest.raises(TiercelValueError, match=message):
        rational(values)


def test_entries_that_are_not_numbers_are_refused():
    with pytest.raises(TiercelTypeError, match="complex"):
        rational([[1j]])


@settings(deadline=None, max_examples=40)
@given(matrices(3, 3))
def test_inverse_is_exact_or_refused(values):
    matrix = rational(values)
    (a, b, c), (d, e, f), (g, h, i) = matrix.fractions()
    if a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g) == 0:
        with pytest.raises(TiercelValueError, match="invertible"):
            inverse(matrix)
    else:
        product = matrix.fractions() @ inverse(matrix).fractions()
        assert rational(product) == rational(np.eye(3))


def test_inverse_needs_a_square():
    with pytest.raises(TiercelValueError, match="square"):
        inverse(rational([[1, 2]]))
