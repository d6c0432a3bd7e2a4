"""Gradients of products that the kernels computed."""

from importlib import import_module

import pytest
import torch
import torch.utils.flop_counter
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional as F

import tiercel


def leaf(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype, requires_grad=True)


@pytest.mark.parametrize(
    ("a", "b"),
    [((4, 3), (3, 5)), ((2, 4, 3), (3, 5)), ((2, 4, 3), (2, 3, 5)), ((3, 1, 4, 3), (2, 3, 5))],
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
def test_first_and_second_derivatives(a, b, dtype, kernel_runs):
    x, y = leaf(*a, dtype=dtype), leaf(*b, dtype=dtype)
    assert gradcheck(tiercel.matmul, (x, y))
    assert gradgradcheck(tiercel.matmul, (x, y))
    assert kernel_runs


@pytest.mark.parametrize("epilogue", [None, "relu", "gelu", "silu"])
def test_linear_with_bias_and_epilogue(epilogue, kernel_runs):
    def function(x, w, bias):
        return tiercel.linear(x, w, bias, epilogue=epilogue)

    inputs = leaf(2, 4, 3), leaf(5, 3), leaf(5)
    assert gradcheck(function, inputs)
    assert gradgradcheck(function, inputs)
    assert (8, 5, 3) in kernel_runs


def test_each_derivative_is_one_product_of_its_own_shape(kernel_runs):
    x, w = leaf(6, 3), leaf(5, 3)
    tiercel.linear(x, w).sum().backward()  # a gradient without strides
    assert kernel_runs == [(6, 5, 3), (6, 3, 5), (5, 3, 6)]
    torch.testing.assert_close(x.grad, w.detach().sum(0).expand(6, 3))
    torch.testing.assert_close(w.grad, x.detach().sum(0).expand(5, 3))
    assert w.grad is not None
    assert w.grad.is_contiguous()


def test_a_followed_call_is_judged_once(kernel_runs, monkeypatch):
    x, w = leaf(6, 3), leaf(5, 3)

    def gradient():
        w.grad = None
        tiercel.linear(x, w).sum().backward()
        return w.grad

    wanted = gradient()
    with monkeypatch.context() as patched:
        patched.setattr(import_module("tiercel.frontends.torch.linear"), "why_left_to_torch", None)
        assert torch.equal(gradient(), wanted)
    assert len(kernel_runs) == 6
    by_transform = torch.func.grad(lambda w: tiercel.linear(x.detach(), w).sum())(w.detach())
    assert torch.equal(by_transform, wanted)
    with torch.no_grad():
        assert not tiercel.linear(x, w).requires_grad
    with torch.utils.flop_counter.FlopCounterMode(display=False) as counted:
        gradient()
    assert counted.get_total_flops() == 3 * 2 * 6 * 5 * 3  # torch's operators


def test_only_what_is_needed_is_computed_and_kept(kernel_runs):
    kept: list[torch.Tensor] = []
    x, w = leaf(6, 3), torch.randn(5, 3, dtype=torch.float64)

    def keep(tensor):
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        y = tiercel.linear(x, w)
    assert [tuple(tensor.shape) for tensor in kept] == [(5, 3)]
    y.sum().backward()
    assert kernel_runs == [(6, 5, 3), (6, 3, 5)]
    with torch.no_grad():
        assert not tiercel.linear(x, w).requires_grad


def test_a_changed_operand_is_noticed(kernel_runs):
    x, w = leaf(6, 3), leaf(5, 3)
    y = tiercel.linear(x, w)
    with torch.no_grad():
        w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_result_may_be_changed_in_place(kernel_runs):
    x, w = leaf(2, 6, 3), leaf(5, 3)
    tiercel.linear(x, w).relu_().sum().backward()
    expected = torch.autograd.grad(F.linear(x, w).relu_().sum(), [x, w])
    torch.testing.assert_close((x.grad, w.grad), expected)


def test_batched_gradients(kernel_runs):
    x, w = leaf(4, 3), leaf(5, 3)
    vectors = torch.randn(7, 4, 5, dtype=torch.float64)
    ours = torch.autograd.grad(tiercel.linear(x, w), [x, w], vectors, is_grads_batched=True)
    expected = torch.autograd.grad(F.linear(x, w), [x, w], vectors, is_grads_batched=True)
    torch.testing.assert_close(ours, expected)


def test_gradients_of_16_bits_are_classical_with_deterministic_algorithms(monkeypatch):
    texts = []

    def recorded(text, classical=False):
        texts.append(of_derivatives(text, classical))
        return texts[-1]

    autograd = import_module("tiercel.frontends.torch.ops.autograd")
    of_derivatives = autograd.of_derivatives
    monkeypatch.setattr(autograd, "of_derivatives", recorded)
    try:
        for wanted in (True, False):
            torch.use_deterministic_algorithms(wanted)
            for dtype in (torch.bfloat16, torch.float32):
                x, w = leaf(6, 3, dtype=dtype), leaf(5, 3, dtype=dtype)
                torch.ops.tiercel.linear(x, w, None, "").sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)
    assert texts == ["accuracy=classical", "", "", ""]
