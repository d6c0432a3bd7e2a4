"""Traced epilogues in NumPy products, against their float64 reference."""

import gc
import weakref

import numpy as np
import pytest

import tiercel
from tiercel import epilogues as ep
from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.frontends.numpy import traced

RNG = np.random.default_rng(8)
EPS = {"f2": 2e-3, "f4": 2e-5, "f8": 1e-12}


@tiercel.epilogue(bias="row")
def everything(acc, bias, residual, gain, offset):
    y = ep.gelu(acc + bias) * gain + residual + offset
    return {
        "y": y,
        "half": ep.swiglu(y),
        "rows": ep.row_sum(y),
        "lse": ep.row_logsumexp(y),
        "columns": ep.column_sum(y * y),
        "peak": ep.column_max(y),
    }


def operands(dtype="f8", M=37, K=20, N=18):
    a, b = RNG.standard_normal((M, K)), RNG.standard_normal((K, N)) / 4
    others = {
        "bias": RNG.standard_normal(N),
        "residual": RNG.standard_normal((M, N)),
        "gain": RNG.standard_normal((M, 1)),
        "offset": 0.25,
    }
    return a.astype(dtype), b.astype(dtype), others


@pytest.mark.parametrize("dtype", EPS)
@pytest.mark.parametrize("step", [1, 5, 10**9])
def test_every_kind_of_operand_and_output(dtype, step, monkeypatch, plan_everything):
    monkeypatch.setattr(traced, "_STEP", 18 * step)
    a, b, others = operands(dtype)
    truth = everything.evaluate(a.astype("f8") @ b.astype("f8"), others)
    found = tiercel.matmul(a, b, epilogue=everything.given(**others))
    assert found.keys() == truth.keys()
    for name, x in found.items():
        assert x.shape == truth[name].shape
        assert x.dtype == (dtype if name in ("y", "half") or dtype != "f2" else "f4")
        np.testing.assert_allclose(x, truth[name], rtol=EPS[dtype], atol=10 * EPS[dtype])


def test_an_epilogue_without_operands_is_passed_as_it_is():
    a, b, _ = operands()
    np.testing.assert_allclose(tiercel.matmul(a, b, epilogue=ep.silu), ep.silu(a @ b))
    bias = RNG.standard_normal(18)
    result = tiercel.linear(a, b.T, bias, epilogue=ep.swiglu)
    np.testing.assert_allclose(result, ep.swiglu(a @ b + bias))
    packed = tiercel.pack(b)
    np.testing.assert_allclose(tiercel.matmul(a, packed, epilogue=ep.silu), ep.silu(a @ b))


def test_a_named_and_a_traced_epilogue_agree():
    a, b, _ = operands("f4")
    for name in ("relu", "gelu", "gelu_tanh", "silu"):
        named = tiercel.matmul(a, b, epilogue=name)
        made = tiercel.matmul(a, b, epilogue=getattr(ep, name))
        np.testing.assert_allclose(made, named, rtol=1e-5, atol=1e-6)


def test_operands_of_a_batch_are_broadcast():
    a, b = RNG.standard_normal((3, 4, 5)), RNG.standard_normal((5, 6))
    gain = RNG.standard_normal((3, 1, 1))
    result = tiercel.matmul(a, b, epilogue=ep.scale.given(scale=gain))
    np.testing.assert_allclose(result, (a @ b) * gain)
    tile = RNG.standard_normal((3, 4, 6))
    result = tiercel.matmul(a, b, epilogue=ep.residual.given(residual=tile))
    np.testing.assert_allclose(result, a @ b + tile)


def test_gradients_of_shared_operands_add_up_over_the_steps(monkeypatch):
    monkeypatch.setattr(traced, "_STEP", 18 * 5)
    a, b, others = operands()
    forward, gains = a @ b, {"scale_a": others["gain"], "scale_b": others["bias"]}
    backward = ep.dequantise.vjp
    found = tiercel.matmul(a, b, epilogue=backward.given(acc=forward, **gains))
    truth = backward(forward, acc=forward, **gains)
    for name in truth:
        np.testing.assert_allclose(found[name], truth[name], rtol=1e-11)


def test_out_receives_the_only_output():
    a, b, _ = operands()
    out = np.empty((37, 9))
    assert tiercel.matmul(a, b, out=out, epilogue=ep.swiglu) is out
    np.testing.assert_allclose(out, ep.swiglu(a @ b))
    with pytest.raises(TiercelValueError, match=r"allowed: an array of shape \(37, 9\)"):
        tiercel.matmul(a, b, out=np.empty((37, 18)), epilogue=ep.swiglu)
    with pytest.raises(TiercelValueError, match="out cannot receive the outputs out, sum"):
        tiercel.matmul(a, b, out=out, epilogue=ep.rms_statistics)
    with pytest.raises(TiercelTypeError, match="out has dtype int64"):
        tiercel.matmul(a, b, out=np.empty((37, 9), int), epilogue=ep.swiglu)


@pytest.mark.parametrize("dtype", ["i4", "c8"])
def test_products_without_an_epilogue(dtype):
    a = np.ones((3, 3), dtype)
    with pytest.raises(TiercelTypeError, match="real floating arrays, not of"):
        tiercel.matmul(a, a, epilogue=ep.silu)


def test_vectors_are_no_matrices():
    with pytest.raises(TiercelValueError, match="give vectors a second axis"):
        tiercel.matmul(np.ones(3), np.ones((3, 4)), epilogue=ep.silu)


def test_missing_operands_are_found_before_anything_is_multiplied():
    with pytest.raises(TiercelValueError, match="operand 'bias' is missing"):
        tiercel.matmul(np.ones((3, 3)), np.ones((3, 3)), epilogue=ep.bias)


def test_plans_know_named_epilogues_only():
    with pytest.raises(TiercelTypeError, match="plans know named epilogues only"):
        tiercel.plan(8, 8, 8, epilogue=ep.silu)  # type: ignore[arg-type]


def test_operands_are_not_kept_after_the_product():
    bias = np.ones(4)
    kept = weakref.ref(bias)
    tiercel.matmul(np.ones((3, 3)), np.ones((3, 4)), epilogue=ep.bias.given(bias=bias))
    del bias
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (3, 4)])
def test_empty_products(shape):
    M, N = shape
    result = tiercel.matmul(np.ones((M, 0)), np.ones((0, N)), epilogue=ep.rms_statistics)
    np.testing.assert_array_equal(result["out"], np.zeros(shape))
    np.testing.assert_array_equal(result["sum_of_squares"], np.zeros((M, 1)))


@pytest.mark.parametrize(
    "value",
    ["x", None, [[1.0], [2.0, 3.0]], np.ones(4, complex), np.full(4, None), np.datetime64(0, "s")],
    ids=str,
)
def test_operands_are_real_numbers(value):
    """Else an imaginary part is lost, and None becomes NaN."""
    add = tiercel.epilogue(lambda acc, r: acc + r)
    x, y = np.ones((3, 4)), np.ones((4, 4))
    with pytest.raises(TiercelTypeError, match=r"operand r is a .*; allowed: a real number"):
        tiercel.matmul(x, y, epilogue=add, r=value)
    if value is not None:
        with pytest.raises(TiercelTypeError, match="operand c is a "):
            tiercel.matmul(x, y, c=value)
    assert np.array_equal(
        tiercel.matmul(x, y, epilogue=add, r=[1.0, 2, 3, 4]), x @ y + [1, 2, 3, 4]
    )
