"""Derivatives of epilogues against torch's autograd, in float64."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tiercel import epilogues as ep

M, N = 5, 12


def rotated(x, cos, sin):
    cos, sin = cos.repeat(1, N // 2 // cos.shape[1]), sin.repeat(1, N // 2 // sin.shape[1])
    even, odd = x[:, 0::2], x[:, 1::2]
    return torch.stack([even * cos - odd * sin, odd * cos + even * sin], -1).reshape(M, N)


def statistics(x, residual, gamma):
    hidden = x + residual
    return hidden * gamma, hidden, (hidden**2).sum(1, keepdim=True)


#: name -> (shapes of the operands, the same in torch)
CASES = {
    "bias": ({"bias": (N,)}, lambda x, bias: x + bias),
    "relu": ({}, F.relu),
    "gelu": ({}, F.gelu),
    "gelu_tanh": ({}, lambda x: F.gelu(x, approximate="tanh")),
    "silu": ({}, F.silu),
    "swiglu": ({}, lambda x: F.silu(x[:, 0::2]) * x[:, 1::2]),
    "geglu": ({}, lambda x: F.gelu(x[:, 0::2]) * x[:, 1::2]),
    "residual": ({"residual": (M, N)}, lambda x, residual: x + residual),
    "scale": ({"scale": (M, 1)}, lambda x, scale: x * scale),
    "dequantise": (
        {"scale_a": (M, 1), "scale_b": (N,)},
        lambda x, scale_a, scale_b: x * scale_a * scale_b,
    ),
    "rope": ({"cos": (M, 3), "sin": (M, 3)}, rotated),
    "rms_statistics": ({}, lambda x: (x, (x**2).sum(1, keepdim=True))),
    "residual_rms": ({"residual": (M, N), "gamma": (N,)}, statistics),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_ready_made(name):
    forward = getattr(ep, name)
    shapes, torchs = CASES[name]
    rng = np.random.default_rng(2)
    arrays = {key: rng.standard_normal(shape) for key, shape in shapes.items()}
    acc = rng.standard_normal((M, N))
    tensors = {key: torch.tensor(x, requires_grad=True) for key, x in arrays.items()}
    x = torch.tensor(acc, requires_grad=True)
    expected = torchs(x, **tensors)
    expected = expected if isinstance(expected, tuple) else (expected,)
    results = forward.evaluate(acc, arrays)
    seeds = {}
    for (key, ours), theirs in zip(results.items(), expected, strict=True):
        np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-12, atol=1e-13)
        seeds[f"d_{key}"] = rng.standard_normal(ours.shape)
    torch.autograd.backward(expected, [torch.tensor(d) for d in seeds.values()])
    backward = forward.vjp
    known = {"acc": acc, **arrays, **seeds}
    found = backward.evaluate(
        known[backward.accumulator],
        {key: known[key] for key in backward.parameters if key in known},
    )
    for key, gradient in found.items():
        tensor = x if key == "d_acc" else tensors[key.removeprefix("d_")]
        assert tensor.grad is not None
        np.testing.assert_allclose(gradient, tensor.grad.numpy(), rtol=1e-11, atol=1e-12)


def test_cross_entropy():
    rng = np.random.default_rng(3)
    logits, target = rng.standard_normal((M, N)), rng.integers(0, N, M)
    x = torch.tensor(logits, requires_grad=True)
    loss = F.cross_entropy(x, torch.tensor(target), reduction="sum")
    loss.backward()
    found = ep.cross_entropy(logits, target=target[:, None])
    np.testing.assert_allclose((found["lse"] - found["picked"]).sum(), loss.item())
    ones = np.ones((M, 1))
    gradient = ep.cross_entropy.vjp(
        logits, target=target[:, None], lse=found["lse"], d_lse=ones, d_picked=-ones
    )
    assert x.grad is not None
    np.testing.assert_allclose(gradient["d_acc"], x.grad.numpy(), atol=1e-14)


@pytest.mark.parametrize(
    ("name", "operands", "torchs"),
    [
        ("relu", {}, F.relu),
        ("clamp", {"low": 0.0, "high": 1.0}, lambda x: x.clamp(0, 1)),
    ],
)
def test_the_same_convention_at_kinks(name, operands, torchs):
    acc = np.array([[-1.0, 0.0, 0.5, 1.0, 2.0]])
    x = torch.tensor(acc, requires_grad=True)
    torchs(x).sum().backward()
    found = getattr(ep, name).vjp(np.ones_like(acc), acc=acc, **operands)
    assert x.grad is not None
    np.testing.assert_array_equal(found["d_acc"], x.grad.numpy())
