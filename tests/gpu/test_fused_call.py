"""Schemes inside the Hopper kernel as the public functions run them, judged by float64.

Both operands in the call (``scheme="winograd"``), and packed layers whose input is combined once.
"""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch.nn import functional as F

import tiercel
from tests.gpu import unkind
from tests.gpu.portable import error, laid_out, normal
from tiercel.frontends.torch.cuda import engine, run, shared
from tiercel.frontends.torch.cuda import fused as cuda_fused
from tiercel.frontends.torch.cuda import machine as cuda_machine
from tiercel.frontends.torch.engine import Request
from tiercel.frontends.torch.routing import shortcut
from tiercel.options import Options
from tiercel.planner.gpu import candidates, choose
from tiercel.planner.problem import Problem

pytestmark = pytest.mark.gpu

M, K, N = 2048, 1024, 4096
SIXTEEN_BIT = [torch.bfloat16, torch.float16]
#: Of the error. Sums of float16 numbers lose their last bit in planes, which shows in a result that
#: is rounded little: 4.0 by the interpreter of ``lower/accumulator``, 3.97 measured.
GROWTH = {torch.bfloat16: 1.10, torch.float16: 4.4}


def algorithm() -> str:
    plan = tiercel.last_plan()
    assert plan is not None
    return plan.chosen.algorithm


def assert_as_good(found, vendors, reference, roundings=1.0):
    assert found.dtype is vendors.dtype
    limit = GROWTH[found.dtype] * roundings
    assert error(found, reference) <= limit * error(vendors, reference)


def operands(dtype=torch.bfloat16):
    return normal(M, K, dtype=dtype), normal(K, N, dtype=dtype, seed=1) / K**0.5


@pytest.mark.parametrize("layout_b", ["row", "column"])
@pytest.mark.parametrize("layout_a", ["row", "column"])
@pytest.mark.parametrize("dtype", SIXTEEN_BIT)
def test_both_operands_are_combined_in_the_call(dtype, layout_a, layout_b):
    a, b = operands(dtype)
    a, b = laid_out(a, layout_a), laid_out(b, layout_b)
    for _ in range(2):  # the second call finds its launches
        found = tiercel.matmul(a, b, scheme="winograd")
        assert algorithm() == "winograd"
        assert_as_good(found, a @ b, a.double() @ b.double())


@pytest.mark.parametrize("rows", [2047, 2050])
def test_rows_that_do_not_divide(rows):
    _, b = operands()
    a = normal(rows, K, dtype=torch.bfloat16)
    found = tiercel.matmul(a, b, scheme="winograd")
    assert_as_good(found, a @ b, a.double() @ b.double())


def test_rows_beyond_whole_turns_are_the_vendors():
    rows, (_, b) = 1024 + 512, operands()
    a, bias = normal(rows, K, dtype=torch.bfloat16), normal(N, dtype=torch.bfloat16, seed=2)
    problem = Problem(rows, N, K, "bfloat16", bias=True, scheme="winograd", static_b=True)
    machine = cuda_machine.machine_for(0, torch.bfloat16)
    divided = candidates._fused_rows(problem, machine, "winograd", 1024)
    assert divided.fringe == 512
    plan = replace(choose.make_plan(problem, machine), chosen=divided)
    out = torch.empty(rows, N, device="cuda", dtype=torch.bfloat16)
    packed, options = cuda_fused.pack(b, "winograd"), Options(scheme="winograd")
    for _ in range(2):
        run.run(plan, Request(a, b, bias, options, packed), out)
        reference = a.double() @ b.double() + bias.double()
        assert_as_good(out, torch.addmm(bias, a, b), reference, roundings=1.25)


def test_bias_epilogue_and_out():
    (a, b), bias = operands(), normal(N, dtype=torch.bfloat16, seed=2)
    out = torch.full((M, N), float("nan"), device="cuda", dtype=torch.bfloat16)
    tiercel.matmul(a, b, out, scheme="winograd")
    assert_as_good(out, a @ b, a.double() @ b.double())
    found = tiercel.linear(a, b.t(), bias, epilogue="relu", scheme="winograd")
    vendors = torch.relu(F.linear(a, b.t(), bias))
    # The bias is added to a result that is rounded already.
    reference = torch.relu(a.double() @ b.double() + bias.double())
    assert_as_good(found, vendors, reference, roundings=1.25)


def test_gradients_by_the_scheme():
    a, b = (x.requires_grad_() for x in operands())
    g = normal(M, N, dtype=torch.bfloat16, seed=3)
    tiercel.matmul(a, b, scheme="winograd").backward(g)
    da, db, g = a.grad, b.grad, g.detach()
    a, b = a.detach(), b.detach()
    assert_as_good(da, g @ b.t(), g.double() @ b.double().t())
    assert_as_good(db, a.t() @ g, a.double().t() @ g.double())


@pytest.mark.parametrize("operand", ["a", "b"])
@pytest.mark.parametrize("kind", unkind.KINDS)
def test_what_does_not_suit_a_scheme_is_multiplied_classically(kind, operand):
    a, b = operands()
    unkind.spoil(a if operand == "a" else b, kind)
    unkind.assert_classical(tiercel.matmul(a, b, scheme="winograd"), a @ b)


def test_captured():
    a, b = operands()
    multiply = partial(tiercel.matmul, a, b, scheme="winograd")
    multiply()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = multiply()
    for change in (a.normal_, lambda: a.fill_(float("nan")), a.normal_):
        change()
        graph.replay()
        if a.isnan().any():
            assert found.isnan().all()
        else:
            assert_as_good(found, a @ b, a.double() @ b.double())


@pytest.fixture
def eager_planner(monkeypatch):
    """16-bit products are multiplied by a scheme inside the kernel, gain or not."""
    real = choose.candidates

    def fused(*given):
        return (c for c in real(*given) if c.variant.kind == "fused")

    monkeypatch.setattr(choose, "candidates", fused)
    monkeypatch.setattr(choose, "MARGIN", dict.fromkeys(choose.MARGIN, 0.1))
    monkeypatch.setattr(choose, "MOST_LOSS", 10.0)
    monkeypatch.setattr(engine, "LEAST_WORK", dict.fromkeys(engine.LEAST_WORK, 0))
    monkeypatch.setattr(engine, "LEAST_FOLLOWED", 0.0)
    engine._plan.cache_clear()
    cuda_fused.unpacked.cache_clear()  # and what it remembers of refused data
    shortcut.forget()
    yield
    engine._plan.cache_clear()
    shortcut.forget()


def layers(count: int = 3) -> torch.nn.ModuleList:
    """Frozen layers of one input, as query, key and value are."""
    made = [torch.nn.Linear(K, N, bias=False, device="meta") for _ in range(count)]
    for i, layer in enumerate(made):
        w = normal(N, K, dtype=torch.bfloat16, seed=10 + i) / K**0.5
        layer.weight = torch.nn.Parameter(w, requires_grad=False)
    return torch.nn.ModuleList(made)


def input_of(layers) -> torch.Tensor:
    return normal(2, M // 2, layers[0].in_features, dtype=torch.bfloat16, seed=9)


def check(layers, x):
    """All layers' results, and how many of them had the planes of x."""
    for layer in layers:
        reference = x.double() @ layer.weight.double().t()
        assert_as_good(layer(x), F.linear(x, layer.weight), reference)
        assert algorithm() not in ("vendor", "classical")
    kept = shared._last.get(x.get_device())
    return 0 if kept is None else len(kept.users)


def test_layers_share_the_planes_of_their_input(eager_planner):
    model = layers()
    x = input_of(model)
    with torch.no_grad(), tiercel.patch(model, pack_weights=True):
        check(model, x)  # sizes of workspaces are found by the first product
        changes = (
            lambda: None,
            lambda: x.mul_(-2),
            lambda: x.copy_(x.flip(0)),
            lambda: x.view(-1)[:K].neg_(),
        )
        for change in changes:
            change()
            assert check(model, x) == 3


def test_an_input_that_changes_between_layers(eager_planner):
    model = layers()
    x = input_of(model)
    with torch.no_grad(), tiercel.patch(model, pack_weights=True):
        check(model, x)
        for layer in model:
            x.mul_(-0.5)
            assert check([layer], x) == 1


def test_refused_planes_are_refused_for_every_layer(eager_planner):
    model = layers()
    x = input_of(model)
    with torch.no_grad(), tiercel.patch(model, pack_weights=True):
        check(model, x)
        x[0, 3, 5] = float("nan")
        for layer in model:
            found, vendors = layer(x), F.linear(x, layer.weight)
            assert torch.equal(found.isnan(), vendors.isnan())
            rows = ~vendors.isnan().any(-1)
            apart = (found[rows].float() - vendors[rows].float()).norm(dim=1)
            assert (apart <= 5e-3 * vendors[rows].float().norm(dim=1)).all()


def test_planes_live_as_long_as_their_input(eager_planner):
    model = layers()
    with torch.no_grad(), tiercel.patch(model, pack_weights=True):
        check(model, input_of(model))
        before = torch.cuda.memory_allocated()
        for _ in range(3):
            check(model, input_of(model))
        assert torch.cuda.memory_allocated() == before
        assert shared._last == {}


def test_hooks_and_an_adapter_beside_shared_planes(eager_planner):
    model = layers(2)
    x = input_of(model)
    down = normal(8, K, dtype=torch.bfloat16, seed=20) / K**0.5
    up = normal(N, 8, dtype=torch.bfloat16, seed=21)
    model[0].register_forward_hook(lambda module, given, y: y + F.linear(F.linear(x, down), up))
    model[1].register_forward_pre_hook(lambda module, given: (given[0] * 2,))
    with torch.no_grad():
        vendors = [layer(x) for layer in model]
        with tiercel.patch(model, pack_weights=True):
            for _ in range(2):
                found = [layer(x) for layer in model]
    wide = x.double()
    references = (
        wide @ (model[0].weight.double() + up.double() @ down.double()).t(),
        2 * wide @ model[1].weight.double().t(),
    )
    for ours, torchs, reference in zip(found, vendors, references, strict=True):
        assert_as_good(ours, torchs, reference)


def test_training_steps_repeat_the_schemes(eager_planner):
    layer = layers(1)[0].requires_grad_()
    wide = layer.weight.detach().double()
    with tiercel.patch(layer, accuracy=8):  # weights are trained without schemes by default
        for seed in range(3):  # the later steps go straight to the launches of the first one
            x = normal(2, M // 2, K, dtype=torch.bfloat16, seed=seed).requires_grad_()
            g = normal(2, M // 2, N, dtype=torch.bfloat16, seed=30 + seed)
            layer.weight.grad = None
            y = layer(x)
            y.backward(g)
            assert algorithm() not in ("vendor", "classical")
            rows, columns = g.flatten(0, 1), x.detach().flatten(0, 1)
            assert_as_good(y, F.linear(x, layer.weight), x.double() @ wide.t())
            assert_as_good(x.grad, g @ layer.weight, g.double() @ wide)
            assert_as_good(
                layer.weight.grad, rows.t() @ columns, rows.double().t() @ columns.double()
            )
