"""Rounding to narrow formats, against ml_dtypes on every interesting value."""

import ml_dtypes
import numpy as np
import pytest

from tiercel.lower.epilogue.rounding import FORMATS, rounded

TYPES = {
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}


@pytest.mark.parametrize("name", FORMATS)
def test_agrees_with_the_conversion_of_the_type(name):
    rng = np.random.default_rng(0)
    form = FORMATS[name]
    least = form.least_exponent - form.bits - 1
    x = rng.standard_normal(20000) * 2.0 ** rng.integers(least, 6, 20000)
    x = x.astype(np.float32)
    halfway = (1 + np.arange(64) / 64).astype(np.float32) * 2.0 ** rng.integers(-5, 5, 64)
    x = np.concatenate([x, halfway, [0.0, -0.0]]).astype(np.float32)
    np.testing.assert_array_equal(rounded(x, name), x.astype(TYPES[name]).astype(np.float32))


@pytest.mark.parametrize("name", FORMATS)
def test_the_far_end(name):
    largest = FORMATS[name].largest
    beyond = largest if FORMATS[name].saturates else np.inf
    x = np.array([largest, -largest, 4 * largest, -np.inf, np.nan])
    found = rounded(x, name)
    np.testing.assert_array_equal(found[:4], [largest, -largest, beyond, -beyond])
    assert np.isnan(found[4])
