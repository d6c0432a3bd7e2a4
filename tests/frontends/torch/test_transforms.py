"""Where torch traces, compiles or transforms a call, it sees operations of its own."""

from typing import Any

import pytest
import torch
from torch.func import functional_call, grad, jvp, vmap
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

import tiercel

SHAPES = ((6, 4), (5, 4))


@pytest.fixture
def xw() -> tuple[torch.Tensor, ...]:
    return tuple(torch.randn(s, dtype=torch.float64) for s in SHAPES)


def test_vmap_and_grad(xw, kernel_runs):
    x, w = xw
    ours = vmap(grad(lambda w, x: tiercel.linear(x[None], w).square().sum()), (None, 0))(w, x)
    expected = vmap(grad(lambda w, x: F.linear(x[None], w).square().sum()), (None, 0))(w, x)
    torch.testing.assert_close(ours, expected)
    assert kernel_runs == []


def test_forward_mode(xw, kernel_runs):
    x, w = xw
    ours = jvp(tiercel.linear, (x, w), (w.new_ones(6, 4), w))
    torch.testing.assert_close(ours, jvp(F.linear, (x, w), (w.new_ones(6, 4), w)))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        tangent = torch.autograd.forward_ad.unpack_dual(tiercel.linear(dual, w)).tangent
    torch.testing.assert_close(tangent, F.linear(torch.ones_like(x), w))
    assert kernel_runs == []


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_without_a_graph_break(dynamic, kernel_runs):
    def function(x, w):
        return tiercel.matmul(tiercel.linear(x, w), w).transpose(-1, -2).contiguous()

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    w = torch.randn(5, 4, requires_grad=True)
    for shape in ((6, 4), (2, 3, 4), (0, 4)):
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x, w), (F.linear(x, w) @ w).transpose(-1, -2))
    assert kernel_runs == []


def test_compile_of_a_patched_model(kernel_runs):
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    x = torch.randn(5, 4)
    expected = model(x)
    tiercel.patch(model, pack_weights=True)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), expected)
    exported = torch.export.export(model, (x,))
    torch.testing.assert_close(exported.module()(x), expected)


def test_recorders_see_the_product(xw, kernel_runs):
    x, w = xw
    with FlopCounterMode(display=False) as counter:
        tiercel.linear(x, w)
    assert counter.get_total_flops() == 2 * 6 * 5 * 4
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
