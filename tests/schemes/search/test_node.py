"""Packing and unpacking are inverse, and refuse what a word cannot hold."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tiercel.errors import TiercelValueError
from tiercel.schemes import classical, get
from tiercel.schemes.search.node import from_scheme, pack, unpack

TERNARY = st.integers(1, 6).flatmap(
    lambda rank: st.tuples(
        *(
            arrays(np.int64, (rank, width), elements=st.integers(-1, 1)).filter(
                lambda x: bool(x.any(axis=1).all())
            )
            for width in (4, 6, 6)
        )
    )
)


@given(factors=TERNARY)
def test_ternary_round_trip_up_to_signs(factors):
    node = pack((2, 2, 3), "ternary", factors)
    back = unpack(node)
    before, after = (np.einsum("ra,rb,rc->rabc", *x) for x in (factors, back))
    assert np.array_equal(before, after)


@given(factors=TERNARY)
def test_round_trip_modulo_2(factors):
    back = unpack(pack((2, 2, 3), "mod2", factors))
    assert all(np.array_equal(x % 2, y) for x, y in zip(factors, back, strict=True))


def test_ternary_refuses_other_integers():
    u, v, w = from_scheme(classical(2, 2, 2))
    with pytest.raises(TiercelValueError, match=r"-1, 0 and 1.*mod2"):
        pack((2, 2, 2), "ternary", (2 * u, v, w))


@pytest.mark.parametrize(("ring", "size"), [("ternary", 6), ("mod2", 9)])
def test_too_large_a_grid_is_refused(ring, size):
    with pytest.raises(TiercelValueError, match="smaller grid"):
        pack((size,) * 3, ring, from_scheme(classical(size, size, size)))


def test_fractions_are_refused():
    with pytest.raises(TiercelValueError, match="integer coefficients"):
        from_scheme(get("accurate"))
