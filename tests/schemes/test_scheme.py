"""A scheme is verified when built, and is the same scheme whatever it is called."""

import time
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.schemes import Scheme, classical, concatenate, get, names, rational, tensor


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from([x for x in names() if get(x).rank < 100]), st.sampled_from("UVW"), st.data()
)
def test_any_changed_coefficient_is_refused_with_its_equation(name, letter, data):
    scheme = get(name)
    factor = getattr(scheme, letter).fractions()
    index = tuple(data.draw(st.integers(0, size - 1)) for size in factor.shape)
    factor[index] += data.draw(st.sampled_from([1, -1, 2]))
    with pytest.raises(TiercelValueError, match=r"A\[\d,\d\] \| B\[\d,\d\] \| C\[\d,\d\]"):
        replace(scheme, **{letter: rational(factor)})


def test_message_names_indices_value_and_expectation():
    with pytest.raises(TiercelValueError) as caught:
        Scheme(1, 1, 2, rational([[1], [1]]), rational(np.eye(2)), rational([[1, 0], [0, "1/2"]]))
    assert "A[0,0] | B[0,1] | C[0,1] gives 1/2, expected 1" in str(caught.value)


def test_violation_beyond_float64_is_seen():
    # 2^60 and 2^60 + 1 are one float64: only exact arithmetic tells the difference.
    exact = Scheme(
        1, 1, 1, rational([[2**60]]), rational([["1/1152921504606846976"]]), rational([[1]])
    )
    assert exact.rank == 1
    with pytest.raises(TiercelValueError, match="1152921504606846977/1152921504606846976"):
        replace(exact, U=rational([[2**60 + 1]]))


def test_strassens_figures():
    strassen = get("strassen")
    assert strassen.grid == (2, 2, 2)
    assert strassen.rank == 7
    assert strassen.nonzeros == (12, 12, 12)
    assert strassen.additions == 18
    assert strassen.saving == 8 / 7
    assert str(strassen) == "<2,2,2;7> strassen"


def test_identity_is_the_content():
    strassen = get("strassen")
    renamed = replace(strassen, name="mine", provenance="memory")
    assert renamed == strassen
    assert hash(renamed) == hash(strassen)
    assert strassen != get("winograd")
    assert strassen != "strassen"


def test_schemes_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        get("strassen").m = 3  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("grid", "error", "message"),
    [
        ((0, 1, 1), TiercelValueError, "m must be at least 1"),
        ((1, 1.5, 1), TiercelTypeError, "k must be an integer"),
        ((1, 1, 2), TiercelValueError, r"V has shape \(1, 1\), expected \(1, 2\)"),
    ],
)
def test_wrong_grids_are_refused(grid, error, message):
    one = rational([[1]])
    with pytest.raises(error, match=message):
        Scheme(*grid, U=one, V=one, W=one)


def test_large_schemes_are_verified_within_a_second():
    start = time.perf_counter()
    classical(5, 5, 5)
    cube = tensor(get("strassen2"), get("strassen"))
    assert cube.rank == 343
    assert time.perf_counter() - start < 1


def test_blocks_of_equations_cover_them_all(monkeypatch):
    monkeypatch.setattr("tiercel.schemes.brent.ENTRIES_PER_BLOCK", 1)
    broken = concatenate(get("strassen"), classical(1, 2, 2), axis="m")
    w = broken.W.fractions()
    w[-1] = 0
    with pytest.raises(TiercelValueError, match=r"A\[2,1\] \| B\[1,1\] \| C\[2,1\] gives 0"):
        replace(broken, W=rational(w))
