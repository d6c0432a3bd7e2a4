"""Calls that torch traces or transforms: derivatives and batches of every kind stay right."""

import warnings
from typing import Any

import pytest
import torch
from torch.func import functional_call, grad, hessian, jacrev, jvp, vmap
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

import tiercel

SHAPES = ((6, 4), (5, 4))


@pytest.fixture
def xw() -> tuple[torch.Tensor, ...]:
    return tuple(torch.randn(s, dtype=torch.float64) for s in SHAPES)


def test_grad_runs_its_products_here(xw, kernel_runs):
    x, w = xw
    ours = grad(lambda w: tiercel.linear(x, w).square().sum())(w)
    expected = grad(lambda w: F.linear(x, w).square().sum())(w)
    torch.testing.assert_close(ours, expected)
    assert kernel_runs == [(6, 5, 4), (5, 4, 6)]


@pytest.mark.parametrize("transform", [jacrev, hessian, lambda f: grad(grad(f))])
def test_higher_derivatives(transform, xw, kernel_runs):
    x = xw[0]

    def through(product):
        return lambda s: product(x * s, (x * s).mT).pow(2).sum()

    s = torch.tensor(1.5, dtype=torch.float64)
    ours, expected = (transform(through(p))(s) for p in (tiercel.matmul, torch.matmul))
    torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize("in_dims", [(0, None, None), (None, 0, None), (1, 0, 0), (0, None, 0)])
@pytest.mark.parametrize("shape", [(7, 4), (2, 7, 4)])
def test_batches_of_linear(in_dims, shape, kernel_runs):
    sizes = (shape, (5, 4), (5,))
    operands = [
        torch.randn(s, dtype=torch.float64)
        if d is None
        else torch.randn(3, *s, dtype=torch.float64).movedim(0, d)
        for s, d in zip(sizes, in_dims, strict=True)
    ]
    ours = vmap(tiercel.linear, in_dims)(*operands)
    torch.testing.assert_close(ours, vmap(F.linear, in_dims)(*operands))


def test_a_batch_of_inputs_is_one_product(kernel_runs):
    x, w = torch.randn(3, 7, 4), torch.randn(5, 4)
    vmap(tiercel.linear, (0, None))(x, w)
    assert kernel_runs == [(21, 5, 4)]


@pytest.mark.parametrize("shapes", [((3, 7, 4), (3, 4, 5)), ((3, 2, 7, 4), (3, 2, 4, 5))])
def test_batches_of_matmul(shapes, kernel_runs):
    a, b = (torch.randn(s, dtype=torch.float64) for s in shapes)
    torch.testing.assert_close(vmap(tiercel.matmul)(a, b), a @ b)


def test_gradients_of_each_sample(xw, kernel_runs):
    x, w = xw
    ours = vmap(grad(lambda w, x: tiercel.linear(x[None], w).square().sum()), (None, 0))(w, x)
    expected = vmap(grad(lambda w, x: F.linear(x[None], w).square().sum()), (None, 0))(w, x)
    torch.testing.assert_close(ours, expected)


def test_forward_mode(xw, kernel_runs):
    x, w = xw
    ours = jvp(tiercel.linear, (x, w), (w.new_ones(6, 4), w))
    torch.testing.assert_close(ours, jvp(F.linear, (x, w), (w.new_ones(6, 4), w)))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        tangent = torch.autograd.forward_ad.unpack_dual(tiercel.linear(dual, w)).tangent
    torch.testing.assert_close(tangent, F.linear(torch.ones_like(x), w))
    assert kernel_runs == []


def test_recorders_see_the_product(xw, kernel_runs):
    x, w = xw
    with FlopCounterMode(display=False) as counter:
        tiercel.linear(x, w)
    assert counter.get_total_flops() == 2 * 6 * 5 * 4
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        traced: Any = torch.jit.trace(tiercel.linear, (x, w))
    torch.testing.assert_close(traced(x + 1, w), F.linear(x + 1, w))
    assert "linear" in str(traced.graph)


def test_fake_tensors(kernel_runs):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        assert tiercel.matmul(torch.empty(300, 300), torch.empty(300, 7)).shape == (300, 7)
    assert kernel_runs == []


def test_functional_call_on_a_patched_model(xw, kernel_runs):
    x, w = xw
    layer = torch.nn.Linear(4, 5, bias=False).double()
    tiercel.patch(layer)
    torch.testing.assert_close(functional_call(layer, {"weight": w}, (x,)), F.linear(x, w))
    assert kernel_runs == [(6, 5, 4)]


def test_a_default_device_changes_nothing(xw, kernel_runs):
    with torch.device("cpu"):
        tiercel.linear(*xw)
    assert kernel_runs == [(6, 5, 4)]


def test_checkpointed_layers_run_here_twice(kernel_runs):
    from torch.utils.checkpoint import checkpoint

    layer, x = torch.nn.Linear(4, 5), torch.randn(6, 4, requires_grad=True)
    tiercel.patch(layer)
    y: Any = checkpoint(layer, x, use_reentrant=False)
    y.sum().backward()
    assert kernel_runs.count((6, 5, 4)) == 2


def test_functionalize_has_torchs_product():
    a, b = torch.randn(2, 700, 700)
    doubled = torch.func.functionalize(lambda x, y: tiercel.matmul(x, y).mul_(2))
    torch.testing.assert_close(doubled(a, b), 2 * (a @ b), atol=1e-3, rtol=1e-4)
    model = torch.nn.Linear(700, 700)
    tiercel.patch(model)
    found = torch.func.functionalize(lambda x: torch.func.functional_call(model, {}, (x,)))(a)
    torch.testing.assert_close(found, model(a), atol=1e-3, rtol=1e-4)
