from fractions import Fraction

import numpy as np
import pytest

from tiercel.bench.accuracy import _exact_dots, relative_error


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_error_of_a_good_product_is_a_few_roundings(rng: np.random.Generator, dtype: type):
    a = rng.standard_normal((70, 50)).astype(dtype)
    b = rng.standard_normal((50, 90)).astype(dtype)
    error = relative_error(a, b, a @ b)
    assert 0 < error < 8 * np.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_error_sees_a_wrong_block(rng: np.random.Generator, dtype: type):
    a = rng.standard_normal((64, 64)).astype(dtype)
    c = a @ a
    c[32:, 32:] *= 1.001
    assert relative_error(a, a, c) > 1e-4


def test_exact_dots_round_once(rng: np.random.Generator):
    rows, cols = rng.standard_normal((2, 40)), rng.standard_normal((40, 3))
    for i in range(2):
        for j in range(3):
            exact = sum(Fraction(x) * Fraction(y) for x, y in zip(rows[i], cols[:, j], strict=True))
            assert _exact_dots(rows, cols)[i, j] == float(exact)


def test_zero_product_has_an_absolute_error():
    zero = np.zeros((4, 4))
    assert relative_error(zero, zero, zero + 1) > 0
