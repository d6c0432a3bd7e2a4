"""Traced epilogues of tensors: NumPy's lowering judges, autograd goes through."""

import numpy as np
import pytest
import torch

import tiercel
from tiercel import epilogues
from tiercel.errors import TiercelTypeError, TiercelValueError

M, N, K = 6, 10, 8


def operands_of(name: str) -> dict:
    shapes = {
        "bias": {"bias": (N,)}, "residual": {"residual": (M, N)}, "scale": {"scale": (M, 1)},
        "dequantise": {"scale_a": (M, 1), "scale_b": (1, N)},
        "residual_rms": {"residual": (M, N), "gamma": (N,)},
        "rope": {"cos": (M, 1), "sin": (M, 1)},
    }  # fmt: skip
    made = {key: torch.randn(shape) for key, shape in shapes.get(name, {}).items()}
    if name == "clamp":
        return {"low": -0.5, "high": 0.5}
    if name == "rms_apply":
        return {"sum_of_squares": torch.rand(M, 1), "width": 8.0}
    return {"target": torch.randint(0, N, (M, 1))} if name == "cross_entropy" else made


ALL = (
    "bias", "relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu", "residual", "scale",
    "dequantise", "clamp", "rope", "rms_statistics", "residual_rms", "rms_apply", "cross_entropy",
)  # fmt: skip


def arrays(given: dict) -> dict:
    return {k: v.numpy() if isinstance(v, torch.Tensor) else v for k, v in given.items()}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_outputs_are_those_of_numpy(name, dtype):
    epilogue, given = getattr(epilogues, name), operands_of(name)
    x, w = torch.randn(M, K, dtype=dtype), torch.randn(N, K, dtype=dtype)
    found = tiercel.linear(x, w, epilogue=epilogue.given(**given))
    wanted = tiercel.linear(x.numpy(), w.numpy(), epilogue=epilogue.given(**arrays(given)))
    if isinstance(wanted, np.ndarray):
        found, wanted = {"out": found}, {"out": wanted}
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        np.testing.assert_allclose(found[key].numpy(), value, rtol=2e-4, atol=2e-5)
        assert found[key].dtype is dtype


def test_half_types_are_computed_in_float32_and_rounded_once_more():
    x, w = torch.randn(M, K).bfloat16(), torch.randn(N, K).bfloat16()
    found = tiercel.linear(x, w, epilogue=epilogues.rms_statistics)
    product = x @ w.t()
    assert torch.equal(found["out"], product)
    assert found["sum_of_squares"].dtype is torch.float32
    torch.testing.assert_close(found["sum_of_squares"], product.float().square().sum(1, True))


@pytest.mark.parametrize("name", ["swiglu", "residual", "rope", "gelu_tanh"])
def test_gradients(name):
    given = {k: v.double().requires_grad_() for k, v in operands_of(name).items()}
    x, w = (torch.randn(size, K, dtype=torch.float64, requires_grad=True) for size in (M, N))
    epilogue = getattr(epilogues, name)

    def function(x, w, *values):
        return tiercel.linear(
            x, w, epilogue=epilogue.given(**dict(zip(given, values, strict=True)))
        )

    assert torch.autograd.gradcheck(function, (x, w, *given.values()))


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float8_e4m3", "float8_e5m2"])
def test_casts_round_as_in_numpy(kind):
    @tiercel.epilogue
    def narrow(acc):
        return epilogues.cast(acc * 100, kind)

    x, eye = torch.randn(M, N), torch.eye(N)
    found = tiercel.matmul(x, eye, epilogue=narrow).numpy()
    np.testing.assert_array_equal(found, narrow(x.numpy()).astype(np.float32))


def test_stacks_and_out():
    a, b, out = torch.randn(3, M, K), torch.randn(3, K, N), torch.empty(3, M, N)
    assert tiercel.matmul(a, b, out, epilogue=epilogues.silu.given()) is out
    torch.testing.assert_close(out, torch.nn.functional.silu(a @ b))
    with pytest.raises(TiercelValueError, match="the epilogue makes"):
        tiercel.matmul(a, b, out, epilogue=epilogues.swiglu)
    with pytest.raises(TiercelValueError, match="out cannot receive the outputs"):
        tiercel.matmul(a, b, out, epilogue=epilogues.rms_statistics)


def test_other_operands_and_products_are_explained():
    x = torch.randn(M, M)
    with pytest.raises(TiercelTypeError, match="operand residual is on ndarray; allowed: numbers"):
        tiercel.matmul(x, x, epilogue=epilogues.residual.given(residual=np.ones((M, M))))
    with pytest.raises(TiercelTypeError, match="needs a product of real floating matrices"):
        tiercel.matmul(x.int(), x.int(), epilogue=epilogues.relu.given())


def test_every_operation_has_a_form_in_torch():
    from tiercel.frontends.torch.epilogues.graph import TORCH
    from tiercel.lower.epilogue.reference import NUMPY

    assert TORCH.keys() == NUMPY.keys()
