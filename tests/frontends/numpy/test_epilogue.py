"""Epilogue and bias, against the float64 formula."""

import math

import numpy as np
import pytest

from tiercel.api import linear, matmul
from tiercel.errors import TiercelTypeError, TiercelValueError

pytestmark = pytest.mark.usefixtures("plan_everything")

erf = np.vectorize(math.erf)
FORMULAS = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * (1 + erf(x / math.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "silu": lambda x: x / (1 + np.exp(-x)),
}
EPS = {"f2": 1e-3, "f4": 2e-6, "f8": 1e-12}


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("dtype", EPS)
def test_named_epilogues(name, dtype):
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal(s).astype(dtype) / 4 for s in ((37, 50), (50, 41)))
    bias = rng.standard_normal(41).astype(dtype)
    truth = FORMULAS[name](a.astype("f8") @ b.astype("f8") + bias)
    c = matmul(a, b, epilogue=name, bias=bias)
    assert c.dtype == dtype
    np.testing.assert_allclose(c, truth, rtol=4 * EPS[dtype], atol=4 * EPS[dtype])
    out = np.empty((41, 37), dtype).T
    assert linear(a, np.ascontiguousarray(b.T), bias, epilogue=name, out=out) is out
    np.testing.assert_allclose(out, truth, rtol=4 * EPS[dtype], atol=4 * EPS[dtype])


@pytest.mark.parametrize("name", FORMULAS)
def test_extreme_finite_values_raise_no_warning(name):
    x = np.array([[-1e30, -700.0, -90.0, -1e-30, 0.0, 90.0, 1e30]], "f4").T
    with np.errstate(all="raise"):
        y = matmul(x, np.ones((1, 1), "f4"), epilogue=name)
    assert np.isfinite(y).all()


def test_both_gelus_follow_their_own_formula():
    x = np.linspace(-6, 6, 97, dtype="f4")[None]
    eye = np.eye(97, dtype="f4")
    for name in ("gelu", "gelu_tanh"):
        np.testing.assert_allclose(
            matmul(x, eye, epilogue=name), FORMULAS[name](x.astype("f8")), atol=2e-6
        )


def test_bias_on_batches_vectors_and_empty_sums():
    rng = np.random.default_rng(1)
    a, b = rng.integers(-3, 4, (3, 4, 5)).astype("f4"), rng.integers(-3, 4, (5, 6)).astype("f4")
    bias = np.arange(6, dtype="f4")
    np.testing.assert_array_equal(matmul(a, b, bias=bias), a @ b + bias)
    np.testing.assert_array_equal(matmul(a[0, 0], b, bias=bias), a[0, 0] @ b + bias)
    np.testing.assert_array_equal(matmul(a[:, :0], b, bias=bias), np.zeros((3, 0, 6)))
    x, w = np.ones((4, 0), "f4"), np.ones((6, 0), "f4")
    np.testing.assert_array_equal(linear(x, w, bias), np.broadcast_to(bias, (4, 6)))
    z = a[0].astype("c8")
    np.testing.assert_array_equal(matmul(z, b, bias=bias), a[0] @ b + bias)


def test_bias_may_lie_in_out():
    a, b, out = np.ones((6, 5)), np.ones((5, 6)), np.zeros((6, 6))
    out[2] = bias = np.arange(6.0)
    matmul(a, b, bias=out[2], out=out)
    np.testing.assert_array_equal(out, np.broadcast_to(5 + bias, (6, 6)))


@pytest.mark.parametrize("bias", [np.ones(5), np.ones((1, 6)), 3.0, np.ones(7)])
def test_bias_of_a_wrong_shape(bias):
    with pytest.raises(TiercelValueError, match=r"allowed: \(6,\)"):
        matmul(np.ones((3, 4)), np.ones((4, 6)), bias=bias)


def test_bias_of_a_wider_kind():
    with pytest.raises(TiercelTypeError, match="complex128"):
        matmul(np.ones((3, 4)), np.ones((4, 6)), bias=np.ones(6, complex))


def test_epilogues_need_real_numbers():
    with pytest.raises(TiercelTypeError, match="real numbers"):
        matmul(np.ones((3, 3), "c8"), np.ones((3, 3), "c8"), epilogue="relu")


@pytest.mark.parametrize("w", [np.ones(4), np.ones((2, 3, 4))])
def test_linear_takes_a_matrix(w):
    with pytest.raises(TiercelValueError, match="w has"):
        linear(np.ones((5, 4)), w)
