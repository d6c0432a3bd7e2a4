"""Equations are read as printed and written back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiercel.errors import TiercelValueError
from tiercel.schemes import get, names, tensor
from tiercel.schemes.notation import format_equations, parse_equations


@settings(deadline=None, max_examples=30)
@given(st.sampled_from([name for name in names() if max(get(name).grid) <= 5]).map(get))
def test_round_trip(scheme):
    assert parse_equations(scheme.grid, format_equations(scheme)) == scheme


def test_signs_factors_and_comments():
    text = """
    m1 = -2 (1/2 a11)(b11)   # a factor before the product
    m2 = a12 (3 b21 - 2 b21)

    c11 = -m1 + m2
    """
    scheme = parse_equations((1, 2, 1), text)
    assert scheme.U.fractions().tolist() == [[-1, 0], [0, 1]]
    assert scheme.V.fractions().tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("m1 = a11 + b11", "a sum of a's times a sum of b's"),
        ("m1 = (a11 a12) b11", "joined by"),
        ("m1 = () b11", "joined by"),
        ("m1 = a13 b11", "a11 ... a12"),
        ("m1 = a11 b11 \n m1 = a12 b21", "new product"),
        ("m1 = a11 b11 \n c12 = m1", "c11 ... c11"),
        ("m1 = a11 b11 \n c11 = m1 + m2", "m2"),
        ("hello", "every line defines"),
        ("m1 = a11 b11 \n c11 = m1", "Brent"),
        ("", "non-empty"),
    ],
)
def test_what_cannot_be_read_is_named(text, message):
    with pytest.raises(TiercelValueError, match=message):
        parse_equations((1, 2, 1), text)


def test_wide_grids_have_no_equations():
    with pytest.raises(TiercelValueError, match="one digit"):
        format_equations(tensor(tensor(get("strassen-2x2x3"), get("strassen")), get("strassen")))
