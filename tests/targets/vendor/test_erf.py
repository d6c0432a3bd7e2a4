"""erfc against the C library."""

import math

import numpy as np
import pytest

from tiercel.targets.vendor.erf import erfc


def test_relative_error_over_the_normal_range():
    x = np.concatenate([np.linspace(-7, 26, 20011), np.linspace(-1e-3, 1e-3, 101)])
    truth = np.array([math.erfc(value) for value in x])
    np.testing.assert_allclose(erfc(x), truth, rtol=2e-15, atol=0)


@pytest.mark.parametrize(("x", "y"), [(np.inf, 0), (-np.inf, 2), (1e300, 0), (0, 1), (30.0, 0)])
def test_erfc_at_the_ends_of_its_range(x, y):
    assert erfc(np.array([x])) == [y]


def test_nan_and_dtype_are_kept():
    y = erfc(np.array([[np.nan, 1]], "f4"))
    assert y.dtype == np.float32
    assert y.shape == (1, 2)
    assert np.isnan(y[0, 0])
