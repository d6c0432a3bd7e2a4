"""``torch.compile`` and ``torch.export``: one graph, for any number of rows, with our operators."""

import numpy as np
import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch._dynamo.utils import counters
from torch.nn import functional as F

import tiercel
from tiercel.frontends.torch import cpu


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    counters.clear()


def layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def graphs_of(function, *arguments) -> list[str]:
    """The printed graphs that a compiler gets, below autograd."""
    from torch._dynamo.backends.common import aot_autograd

    printed: list[str] = []

    def keep(graph, example_inputs):
        printed.append(graph.print_readable(print_output=False))
        return graph

    torch.compile(function, fullgraph=True, backend=aot_autograd(fw_compiler=keep))(*arguments)
    return printed


def test_after_products_of_arrays():
    a = np.ones((300, 300))
    tiercel.matmul(a, a)  # is NumPy's, and handed to it by generated code from then on
    compiled = torch.compile(tiercel.matmul, fullgraph=True, backend="aot_eager")
    x = torch.ones(2, 2)
    assert torch.equal(compiled(x, x), x @ x)


def test_a_packed_operand_breaks_no_graph():
    b = torch.ones(4, 3)
    packed = tiercel.pack(b)
    compiled = torch.compile(tiercel.matmul, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(torch.ones(2, 4), packed), torch.full((2, 3), 4.0))


@pytest.mark.parametrize("dynamic", [False, True])
def test_without_a_graph_break(dynamic, kernel_runs):
    def function(x, w):
        return tiercel.matmul(tiercel.linear(x, w), w).transpose(-1, -2).contiguous()

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    w = torch.randint(-2, 3, (5, 4)).float().requires_grad_()
    for shape in ((6, 4), (2, 3, 4), (0, 4)):
        x = torch.randint(-2, 3, shape).float()  # whole numbers: the same in any order
        ours, expected = compiled(x, w), (F.linear(x, w) @ w).transpose(-1, -2)
        torch.testing.assert_close(ours, expected)
        torch.testing.assert_close(
            torch.autograd.grad(ours.square().sum(), w),
            torch.autograd.grad(expected.square().sum(), w),
        )
    assert (6, 5, 4) in kernel_runs


@pytest.mark.parametrize("training", [False, True])
def test_any_number_of_rows_is_one_graph(training, kernel_runs):
    model = layers().requires_grad_(training)
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, fullgraph=True, backend=counter, dynamic=True)
    tiercel.patch(model)
    for rows in (2, 3, 64, 500, 4096):
        x = torch.randn(rows, 4)
        with torch.set_grad_enabled(training):
            torch.testing.assert_close(compiled(x), model(x))
    assert counter.frame_count == 1
    assert not counters["graph_break"]


def test_a_patched_model(kernel_runs):
    model, x = layers(), torch.randn(5, 4)
    expected = model(x)
    tiercel.patch(model, pack_weights=True)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), expected)
    assert kernel_runs == [(5, 8, 4), (5, 3, 8)]


@pytest.mark.parametrize(
    ("dtype", "words"), [(torch.float32, ""), (torch.bfloat16, "accuracy=classical")]
)
def test_a_trained_weight_of_16_bits_has_no_scheme(dtype, words, monkeypatch):
    monkeypatch.setattr(cpu, "torch_is_fast_in", lambda dtype: False)
    found = []

    def keep(graph, example_inputs):
        found.extend(n.args[-1] for n in graph.graph.nodes if n.target is torch.ops.tiercel.linear)
        return graph

    layer = nn.Linear(4, 8, dtype=dtype)
    with tiercel.patch(layer):
        compiled = torch.compile(layer, fullgraph=True, backend=keep)
        compiled(torch.ones(2, 4, dtype=dtype)).sum().backward()
        with torch.no_grad():
            compiled(torch.ones(2, 4, dtype=dtype))
    assert found == [words, ""]


def test_inductor(kernel_runs):
    model, x = layers(), torch.randn(5, 4, requires_grad=True)
    expected = torch.autograd.grad(model(x).sum(), [x, *model.parameters()])
    tiercel.patch(model)
    compiled = torch.compile(model, fullgraph=True)
    ours = torch.autograd.grad(compiled(x).sum(), [x, *model.parameters()])
    torch.testing.assert_close(ours, expected)
    assert (5, 8, 4) in kernel_runs


@pytest.mark.parametrize("epilogue", ["relu", "gelu"])
@pytest.mark.parametrize("training", [False, True])
def test_options_are_kept(epilogue, training, kernel_runs):
    def function(x, w, bias):
        return tiercel.linear(
            x, w, bias, epilogue=epilogue, accuracy="classical", workspace=1 << 20
        )

    arguments = [torch.randn(s, requires_grad=training) for s in ((6, 4), (5, 4), (5,))]
    ours = torch.compile(function, fullgraph=True, backend="aot_eager")(*arguments)
    torch.testing.assert_close(ours, function(*arguments))
    assert kernel_runs[0] == (6, 5, 4)


def test_a_product_that_torch_is_faster_for_is_torchs_in_the_graph():
    graph = graphs_of(tiercel.linear, torch.randn(4, 16), torch.randn(8, 16))[0]
    assert "aten.mm" in graph
    assert "ops.tiercel" not in graph


def test_a_product_that_gains_stays_ours(monkeypatch):
    plan_for = cpu.plan_for
    monkeypatch.setattr(cpu, "_plan", cpu._plan.__wrapped__)
    monkeypatch.setattr(cpu, "plan_for", lambda p: plan_for(_with_strassen(p)))
    graph = graphs_of(tiercel.linear, torch.randn(700, 700), torch.randn(700, 700))[0]
    assert "ops.tiercel.linear" in graph


def _with_strassen(problem):
    from dataclasses import replace

    return replace(problem, scheme="strassen", must_use=True)


def test_a_scheme_is_used_or_refused(kernel_runs):
    def function(x):
        return tiercel.matmul(x, x, scheme="strassen")

    x = torch.ones(200, 200)
    assert torch.equal(torch.compile(function, backend="eager")(x), x @ x)
    with pytest.raises(Exception, match="strassen"):
        torch.compile(function, backend="eager")(x.int())


@pytest.mark.filterwarnings("error")
def test_options_bring_no_warning(monkeypatch):
    monkeypatch.setattr(torch._dynamo.utils, "warn_once_cache", set(), raising=False)
    compiled = torch.compile(tiercel.matmul, fullgraph=True, backend="eager")
    x = torch.ones(2, 2)
    assert torch.equal(compiled(x, x, scheme="classical", workspace="1MiB"), x @ x)


def test_autocast(kernel_runs):
    model, x = layers(), torch.randn(5, 4)
    tiercel.patch(model)

    def function(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x)

    ours = torch.compile(function, fullgraph=True, backend="aot_eager")(x)
    assert ours.dtype is torch.bfloat16
    torch.testing.assert_close(ours, function(x))


@pytest.mark.parametrize("strict", [False, True])
def test_exported_models_call_the_operators(strict, kernel_runs):
    model, x = layers(), torch.randn(5, 4)
    expected = model(x)
    tiercel.patch(model)
    rows = torch.export.Dim("rows", min=2)
    exported = torch.export.export(model, (x,), dynamic_shapes=({0: rows},), strict=strict)
    assert "tiercel.linear" in str(exported.graph)
    torch.testing.assert_close(exported.module()(x), expected)
    more = torch.randn(300, 4)
    torch.testing.assert_close(exported.module()(more), model(more))
    lowered = exported.run_decompositions().module()
    torch.testing.assert_close(lowered(more), model(more))


def test_transforms_inside_a_compiled_function(kernel_runs):
    x, w = torch.randn(6, 4), torch.randn(5, 4)

    def each(w, x):
        return torch.func.grad(lambda w: tiercel.linear(x[None], w).square().sum())(w)

    def function(w, x):
        return torch.vmap(each, (None, 0))(w, x)

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(w, x), function(w, x))


def test_an_out_in_a_compiled_function():
    a, b, out = torch.randn(3, 700, 700)
    compiled = torch.compile(tiercel.matmul, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(a, b, out=out), a @ b, atol=1e-3, rtol=1e-4)
    torch.testing.assert_close(out, a @ b, atol=1e-3, rtol=1e-4)
