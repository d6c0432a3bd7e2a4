"""alpha, beta, c and operands by name, of arrays; tensors are in ``frontends/torch``."""

import numpy as np
import pytest

import tiercel
from tiercel import epilogues
from tiercel.errors import TiercelTypeError, TiercelValueError

RNG = np.random.default_rng(3)
M, N, K = 9, 14, 6
ERRORS = {"f2": 5e-3, "f4": 1e-5, "f8": 1e-13}


def arrays(dtype: str, *shapes):
    return [RNG.standard_normal(shape).astype(dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", ERRORS)
@pytest.mark.parametrize("shape", [(M, N), (N,), (1, N), (M, 1), (1, 1), ()])
def test_c_broadcasts(dtype: str, shape):
    a, b, c = arrays(dtype, (M, K), (K, N), shape)
    wanted = 0.5 * (a.astype("f8") @ b) - 2 * c.astype("f8")
    found = tiercel.matmul(a, b, c=c, alpha=0.5, beta=-2)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, wanted, rtol=ERRORS[dtype], atol=10 * ERRORS[dtype])


def test_a_vector_is_a_row_of_square_products():
    a, b, c = arrays("f8", (5, 5), (5, 5), (5,))
    np.testing.assert_allclose(tiercel.matmul(a, b, c=c), a @ b + c)


def test_order_is_scale_add_bias_epilogue():
    a, b, c, bias = arrays("f8", (M, K), (K, N), (M, N), (N,))
    found = tiercel.matmul(a, b, c=c, alpha=3, bias=bias, epilogue="relu")
    np.testing.assert_allclose(found, np.maximum(3 * (a @ b) + c + bias, 0))


def test_beta_defaults_to_one_and_zero_does_not_read():
    a, b, c = arrays("f8", (M, K), (K, N), (M, N))
    np.testing.assert_allclose(tiercel.matmul(a, b, c=c), a @ b + c)
    unread = np.full((M, N), np.nan)
    np.testing.assert_allclose(tiercel.matmul(a, b, c=unread, beta=0), a @ b)


def test_operands_by_name():
    a, b, h, gamma = arrays("f8", (M, K), (K, N), (M, N), (N,))
    wanted = epilogues.residual_rms(a @ b, residual=h, gamma=gamma)
    found = tiercel.matmul(a, b, epilogue=epilogues.residual_rms, residual=h, gamma=gamma)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value)


def test_linear_layers_take_operands_too():
    x, w, residual, bias = arrays("f8", (M, K), (N, K), (M, N), (N,))
    found = tiercel.linear(x, w, bias, epilogue=epilogues.residual, residual=residual)
    np.testing.assert_allclose(found, x @ w.T + bias + residual)
    np.testing.assert_allclose(tiercel.linear(x, w, bias, epilogue=epilogues.bias), x @ w.T + bias)
    with pytest.raises(TiercelTypeError, match="residual: neither an option"):
        tiercel.linear(x, w, bias, residual=residual)


def test_names_of_operands_come_before_those_of_the_call():
    @tiercel.epilogue(bias="row")
    def after(acc, c, bias, alpha=1.0):
        return epilogues.relu(acc) * c * alpha + bias

    a, b, c, bias = arrays("f8", (M, K), (K, N), (M, N), (N,))
    found = tiercel.matmul(a, b, epilogue=after, c=c, bias=bias, alpha=2.0)
    np.testing.assert_allclose(found, after(a @ b, c=c, bias=bias, alpha=2.0))
    found = tiercel.matmul(a, b, epilogue=after.given(c=c, bias=bias), alpha=2.0)
    np.testing.assert_allclose(found, after(a @ b, c=c, bias=bias, alpha=2.0))


@pytest.mark.parametrize("dtype", ["i4", "c8"])
def test_products_without_epilogues_use_the_arrays_own_operations(dtype: str):
    a, b = (RNG.integers(-5, 5, s).astype(dtype) for s in ((M, K), (K, N)))
    c = RNG.integers(-5, 5, (M, N)).astype(dtype)
    found = tiercel.matmul(a, b, c=c, alpha=2, beta=3)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, 2 * (a @ b) + 3 * c)
    np.testing.assert_allclose(tiercel.matmul(a, b, alpha=1j), 1j * (a @ b))


def test_products_of_vectors_take_terms():
    a, b = arrays("f8", K, (K, N))
    out = np.empty(N)
    assert tiercel.matmul(a, b, out, alpha=2.0, c=1.0) is out
    np.testing.assert_allclose(out, 2 * (a @ b) + 1)
    with pytest.raises(TiercelTypeError, match="needs a product of real floating matrices"):
        tiercel.matmul(a, b, alpha=2.0, epilogue="relu")


def test_out_may_be_c():
    a, b, c = arrays("f8", (M, K), (K, N), (M, N))
    wanted = a @ b + 0.5 * c
    assert tiercel.matmul(a, b, c, c=c, beta=0.5) is c
    np.testing.assert_allclose(c, wanted)


#: What a product of a matrix by itself, given another of other sizes, does not take.
REFUSED = [
    (lambda a, _: {"accurcy": "fast"}, TiercelTypeError, "accurcy: neither an option"),
    (
        lambda a, _: {"epilogue": "relu", "residual": a},
        TiercelTypeError,
        r"residual: neither .* epilogue='relu'",
    ),
    (
        lambda a, _: {"epilogue": epilogues.residual},
        TiercelValueError,
        "operand 'residual' is missing",
    ),
    (lambda a, _: {"beta": 2}, TiercelValueError, "beta is 2 and c is missing"),
    (lambda a, _: {"alpha": "2"}, TiercelTypeError, "alpha is a str"),
    (lambda a, _: {"alpha": 1j}, TiercelTypeError, "real numbers"),
    (lambda a, other: {"c": other}, TiercelValueError, r"operand 'c' has shape \(3, 5\)"),
]


@pytest.mark.parametrize(("terms", "error", "message"), REFUSED)
def test_refusals_name_the_argument(terms, error, message):
    a, other = np.ones((3, 3)), np.ones((3, 5))
    with pytest.raises(error, match=message):
        tiercel.matmul(a, a, **terms(a, other))
