"""Shared sums compute the same forms with no more additions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tiercel.schemes import get, names, rational
from tiercel.schemes.additions import reduced_additions, share_sums

FORMS = st.tuples(st.integers(1, 8), st.integers(1, 8)).flatmap(
    lambda shape: arrays(np.int64, shape, elements=st.integers(-2, 2))
)


@given(forms=FORMS.filter(lambda x: bool(x.any(axis=1).all())), seed=st.integers(0, 5))
def test_shared_sums_are_the_forms(forms, seed):
    shared = share_sums(rational(forms), seed)
    x = np.random.default_rng(seed).integers(-99, 100, forms.shape[1]).tolist()
    assert shared(x) == [sum(int(a) * b for a, b in zip(row, x, strict=True)) for row in forms]
    assert shared.additions <= np.count_nonzero(forms) - len(forms)


@settings(deadline=None, max_examples=20)
@given(
    st.sampled_from([name for name in names() if get(name).rank < 50]).map(get), st.integers(0, 9)
)
def test_shared_sums_compute_a_scheme(scheme, seed):
    """The whole scheme by its three programs, on integers that do not fit a product by chance."""
    rng = np.random.default_rng(seed)
    m, k, n = scheme.grid
    a, b = (rng.integers(-999, 1000, shape).astype(object) for shape in ((m, k), (k, n)))
    left, right = (
        share_sums(x, seed)(y.ravel().tolist()) for x, y in ((scheme.U, a), (scheme.V, b))
    )
    outputs = share_sums(scheme.W.fractions().T, seed)
    products = [x * y for x, y in zip(left, right, strict=True)]
    assert outputs(products) == (a @ b).ravel().tolist()
    assert reduced_additions(scheme, tries=1) <= scheme.additions


@pytest.mark.parametrize(
    ("name", "most"), [("strassen", 18), ("winograd", 15), ("laderman", 68), ("sparse-3x3x3", 66)]
)
def test_known_counts(name, most):
    assert reduced_additions(get(name)) <= most
