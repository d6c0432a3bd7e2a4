"""The short way to repeat a product of the CUDA engine, with work that torch does on the CPU."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

import tiercel
from tiercel import counters
from tiercel.frontends.torch import summand
from tiercel.frontends.torch.cuda import direct, engine
from tiercel.frontends.torch.cuda.packed import Packed
from tiercel.frontends.torch.cuda.variants import settings
from tiercel.frontends.torch.engine import Request
from tiercel.frontends.torch.products import weight_grad_request
from tiercel.frontends.torch.routing import repeated
from tiercel.options import checked_options
from tiercel.planner.gpu import required
from tiercel.planner.gpu.variants import Variant
from tiercel.targets import gpu
from tiercel.targets.gpu import ready
from tiercel.targets.hopper.epilogues import product as product_epilogue
from tiercel.targets.hopper.products import product


class Work:
    """What ``targets.gpu`` prepares: counts how often it runs, or finds no memory."""

    def __init__(self) -> None:
        self.ran = 0
        self.fails = False

    def run(self, a, b, out, c, packed, report=None):
        if self.fails:
            raise torch.OutOfMemoryError("none left")
        self.ran += 1
        torch.matmul(a.reshape(-1, a.shape[-1]), b.t(), out=out.view(-1, out.shape[-1]))
        if c is not None:
            out += c


@pytest.fixture
def work(monkeypatch):
    made = Work()
    machine = replace(required("NVIDIA H200"), prepare=0.0)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: -1)  # that of CPU tensors
    monkeypatch.setattr(engine, "machine_for", lambda device, dtype: machine)
    monkeypatch.setattr(ready, "find", lambda *operands, **settings: made)
    engine._plan.cache_clear()
    yield made
    engine._plan.cache_clear()


def repeating(x, w, bias=None, packed=None, rows=None, **options):
    """The plan of x wᵀ + bias by Strassen's scheme, and the short way to repeat it."""
    rows = x.reshape(-1, x.shape[-1]) if rows is None else rows
    request = Request(rows, w.t(), bias, checked_options(**options), packed)
    plan = engine._plan(request.product, checked_options(scheme="strassen"), -1, None)
    result = torch.empty(*x.shape[:-1], len(w))
    return plan, direct.direct(plan, request, (x, w, bias), result)


@pytest.mark.parametrize("biased", [False, True])
def test_like_operands_take_it(work, biased):
    x, w = torch.randn(2, 3, 256), torch.randn(8, 256)
    bias = torch.randn(8) if biased else None
    plan, repeat = repeating(x, w, bias)
    counters.stats(reset=True)
    y = torch.randn(2, 3, 256)
    torch.testing.assert_close(repeat(y, w, bias), torch.nn.functional.linear(y, w, bias))
    assert work.ran == 1
    assert counters.last_plan() is plan
    assert counters.stats()["strassen"].calls == 1


def test_it_writes_an_out(work):
    x, w, out = torch.randn(4, 256), torch.randn(8, 256), torch.empty(4, 8)
    _, repeat = repeating(x, w)
    assert repeat(x, w, None, out) is out
    torch.testing.assert_close(out, x @ w.t())


def test_what_has_another_alignment_or_no_memory_does_not(work):
    x, w = torch.randn(4, 256), torch.randn(8, 256)
    _, repeat = repeating(x, w)
    assert repeat(torch.randn(4 * 256 + 1)[1:].view(4, 256), w, None) is None
    assert repeat(x, w, None, torch.empty(4 * 8 + 1)[1:].view(4, 8)) is None
    work.fails = True
    assert repeat(x, w, None) is None


def test_on_another_device_it_is_not_taken(work, monkeypatch):
    x, w = torch.randn(4, 256), torch.randn(8, 256)
    _, repeat = repeating(x, w)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    assert repeat(x, w, None) is None


def test_what_needs_more_than_launches_has_none(work):
    x, w = torch.randn(4, 256), torch.randn(8, 256)
    assert repeating(x, w, packed=SimpleNamespace())[1] is None
    assert repeating(x, w, epilogue="relu")[1] is None
    assert repeating(x, w, rows=x.clone())[1] is None
    plan, _ = repeating(x, w)
    vendor = plan.choosing("vendor")
    assert (
        direct.direct(vendor, Request(x, w.t(), None, checked_options()), (x, w, None), x) is None
    )


class Weight:
    """A weight (N, K), or none at all: then b comes with each call."""

    def __init__(self, w=None):
        self.w, self.allowed, self.calls = w, True, []

    @property
    def refusals(self):
        return SimpleNamespace(resting=lambda: not self.allowed)

    def call(self, operands, any_scale):
        lie = [(x.shape, x.stride()) for x in operands]

        def run(operands, tracked):
            self.calls.append({"any_scale": any_scale, "tracked": tracked})
            a, out, *b = (x.as_strided(*lies) for x, lies in zip(operands, lie, strict=True))
            torch.mm(a, b[0] if b else self.w.t(), out=out)

        return SimpleNamespace(run=run)

    def multiply_and_end(self, a, out, epilogue, operands, **more):
        self.calls.append({**more, "epilogue": epilogue.name})
        torch.addmm(operands["bias"], a, self.w.t(), out=out)


PLAN = SimpleNamespace(
    chosen=SimpleNamespace(variant=Variant("fused"), fringe=0, algorithm="winograd"),
    problem=SimpleNamespace(accuracy="fast"),
    multiplications_saved=5,
)


def fused(x, w, packed, bias=None):
    """The short way to repeat x wᵀ inside the Hopper kernel."""
    rows = x.reshape(-1, x.shape[-1])
    request = Request(rows, w.t(), bias, checked_options(), packed, tracked=True)
    return direct.direct(PLAN, request, (x, w, bias), x.new_empty(*x.shape[:-1], len(w)))  # type: ignore[arg-type]


@pytest.mark.parametrize("biased", [False, True])
def test_the_kernels_scheme_is_repeated_for_the_same_packed_weight(work, monkeypatch, biased):
    x, w, bias = halves(2, 3, 8), halves(6, 8), halves(6) if biased else None
    weight = Weight(w)
    packed = Packed("winograd", weight, 0, "fused")
    repeat = fused(x, w, packed, bias)
    wanted = torch.nn.functional.linear(x, w, bias)
    torch.testing.assert_close(repeat(x, w, bias), wanted)
    more = {"epilogue": "bias"} if biased else {"tracked": True}
    assert weight.calls == [{"any_scale": True, **more}]
    weight.allowed = False
    assert repeat(x, w, bias) is None


def test_the_kernels_scheme_is_repeated_without_a_packed_weight(work, monkeypatch):
    x, w, weight = torch.randn(4, 8), torch.randn(6, 8), Weight()
    monkeypatch.setattr(direct, "weight_of", lambda plan, request: weight)
    repeat = fused(x, w, None)
    torch.testing.assert_close(repeat(x, w, None), x @ w.t())
    assert len(weight.calls) == 1


@pytest.mark.parametrize("biased", [False, True])
def test_rows_that_are_left_to_torch(work, monkeypatch, biased):
    x, w, bias = torch.randn(7, 8), torch.randn(6, 8), torch.randn(6) if biased else None
    weight = Weight(w)
    monkeypatch.setattr(PLAN.chosen, "fringe", 3)
    repeat = fused(x, w, Packed("winograd", weight, 0, "fused"), bias)
    mm, torchs = torch.mm, []
    monkeypatch.setattr(torch, "mm", lambda a, b, out: torchs.append(len(a)) or mm(a, b, out=out))
    torch.testing.assert_close(repeat(x, w, bias), torch.nn.functional.linear(x, w, bias))
    assert torchs == [4, 3]


@pytest.mark.parametrize("name", [None, "relu"])
@pytest.mark.parametrize("biased", [False, True])
def test_the_plain_kernel_is_repeated(work, monkeypatch, biased, name):
    def gemm_epilogue(a, b, epilogue, operands, config, out):
        made.append(epilogue.name)
        results = epilogue.evaluate((a @ b).numpy(), {x: y.numpy() for x, y in operands.items()})
        out.copy_(torch.from_numpy(results["out"]))

    monkeypatch.setattr(product, "gemm", lambda a, b, out, tf32, config: torch.mm(a, b, out=out))
    monkeypatch.setattr(product_epilogue, "gemm_epilogue", gemm_epilogue)
    plan = SimpleNamespace(
        chosen=SimpleNamespace(variant=Variant("plain"), algorithm="classical"),
        multiplications_saved=0,
    )
    x, w, bias = halves(2, 3, 8), halves(6, 8), halves(6) if biased else None
    made = []
    request = Request(x.reshape(6, 8), w.t(), bias, checked_options(epilogue=name), None)
    repeat = direct.direct(plan, request, (x, w, bias), x.new_empty(2, 3, 6))  # type: ignore[arg-type]
    assert repeat is not None
    y, v = halves(2, 3, 8), halves(6, 8)
    wanted = torch.nn.functional.linear(y, v, bias)
    wanted = wanted if name is None else wanted.relu()
    torch.testing.assert_close(repeat(y, v, bias), wanted, rtol=0, atol=4e-3)
    assert len(made) == (biased or name is not None)


def halves(*shape: int) -> torch.Tensor:
    return torch.randn(*shape).half()


@pytest.mark.parametrize("shape", [(12,), (3, 4), (2, 3, 2)])
def test_the_gradient_of_a_weight_is_repeated(work, monkeypatch, shape):
    weight = Weight()
    monkeypatch.setattr(direct, "weight_of", lambda plan, request: weight)
    g, x = halves(*shape, 6), halves(*shape, 8)
    request = weight_grad_request(g, x, None, checked_options())
    assert request is not None
    repeat = direct.direct(PLAN, request, (g, x, None), x.new_empty(6, 8))  # type: ignore[arg-type]
    assert repeat is not None
    g, x = halves(*shape, 6), halves(*shape, 8)
    wanted = g.reshape(12, 6).t() @ x.reshape(12, 8)
    torch.testing.assert_close(repeat(g, x, None), wanted)


def test_a_summand_is_added_by_the_scheme(work, monkeypatch):
    a, b, c = (torch.randn(256, 256) for _ in range(3))
    plan, _ = repeating(a, b.t())
    known = repeated.Known(
        engine,
        plan,
        None,
        repeated.kinds(a, b, None),
        None,
        (256, 256),
        None,  # type: ignore[arg-type]
    )
    added = []

    def product(a, b, scheme, levels, out, c, alpha, beta, workspace, report):
        added.append((scheme, levels))
        return torch.addmm(c, a, b, alpha=alpha, beta=beta, out=out)

    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(engine, "why_not", lambda dtype: "")
    monkeypatch.setattr(summand, "look_up", lambda *operands: known)
    monkeypatch.setattr(gpu, "product", product)
    torch.testing.assert_close(tiercel.matmul(a, b, c=c, alpha=2), 2 * (a @ b) + c)
    wanted = a @ b - c
    assert tiercel.matmul(a, b, c, c=c, beta=-1) is c
    torch.testing.assert_close(c, wanted)
    assert added == [settings(plan, None)[:2]] * 2
    assert counters.last_plan() is plan
