"""Traced epilogues under ``torch.compile`` and ``torch.export``: one graph, eager's results."""

import pytest
import torch
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.testing import CompileCounterWithBackend

import tiercel
from tiercel import epilogues
from tiercel.errors import TiercelValueError
from tiercel.frontends.torch.ops import epilogue as epilogue_op

M, N, K = 6, 10, 8


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()


@tiercel.epilogue(bias="row")
def bias_gelu(acc, bias, scale=1.0):
    return epilogues.gelu(acc + bias) * scale


@tiercel.epilogue
def several(acc, residual):
    hidden = acc + residual
    norm = epilogues.row_sum(hidden * hidden)
    return {"norm": norm, "hidden": hidden, "same": residual, "peak": epilogues.column_max(acc)}


CASES = {
    "bias_gelu": (bias_gelu, {"bias": (N,)}, {"scale": 2.0}),
    "several": (several, {"residual": (M, N)}, {}),
    "swiglu": (epilogues.swiglu, {}, {}),
    "rope": (epilogues.rope, {"cos": (M, 1), "sin": (M, 1)}, {"rotated": 4.0}),
}


def case(name: str, training: bool = False):
    epilogue, shapes, numbers = CASES[name]
    arrays = {key: torch.randn(shape, requires_grad=training) for key, shape in shapes.items()}
    x, w = (torch.randn(size, K, requires_grad=training) for size in (M, N))

    def function(x, w, arrays):
        return tiercel.matmul(x, w.t(), epilogue=epilogue, **arrays, **numbers)

    return function, x, w, arrays


def graph_of(function, *arguments) -> str:
    printed: list[str] = []

    def keep(graph, example_inputs):
        printed.append(graph.print_readable(print_output=False))
        return graph

    torch.compile(function, fullgraph=True, backend=aot_autograd(fw_compiler=keep))(*arguments)
    return printed[0]


def flat(made) -> list[torch.Tensor]:
    return [made] if isinstance(made, torch.Tensor) else list(made.values())


@pytest.mark.parametrize("name", CASES)
def test_one_graph_gives_what_eager_gives(name):
    function, *arguments = case(name)
    found = torch.compile(function, fullgraph=True, backend="aot_eager")(*arguments)
    torch.testing.assert_close(found, function(*arguments))


@pytest.mark.parametrize("name", CASES)
def test_gradients_in_a_graph(name):
    function, x, w, arrays = case(name, training=True)

    def gradients(call):
        total = sum(y.square().sum() for y in flat(call(x, w, arrays)))
        assert isinstance(total, torch.Tensor)
        return torch.autograd.grad(total, [x, w, *arrays.values()])

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(gradients(compiled), gradients(function))


def test_any_number_of_rows_is_one_graph():
    counter = CompileCounterWithBackend("aot_eager")

    def function(x, w):
        return tiercel.linear(x, w, epilogue=epilogues.rms_statistics)

    compiled, w = torch.compile(function, fullgraph=True, backend=counter, dynamic=True), None
    for rows in (3, 5, 64, 500):
        x, w = torch.randn(rows, K), torch.randn(N, K) if w is None else w
        torch.testing.assert_close(compiled(x, w), function(x, w))
    assert counter.frame_count == 1


def test_terms_around_a_product_and_inductor():
    x, w, c = torch.randn(M, K), torch.randn(K, N), torch.randn(M, N)

    def function(x, w, c):
        return tiercel.matmul(x, w, c=c, alpha=2.0, beta=0.5, epilogue=bias_gelu, bias=c[0])

    compiled = torch.compile(function, fullgraph=True)
    torch.testing.assert_close(compiled(x, w, c), function(x, w, c))


def test_autocast_in_a_graph():
    x, w = torch.randn(M, K), torch.randn(N, K)

    def function(x, w):
        with torch.autocast("cpu", torch.bfloat16):
            return tiercel.linear(x, w, torch.ones(N), epilogue=epilogues.silu.given())

    found = torch.compile(function, fullgraph=True, backend="aot_eager")(x, w)
    assert found.dtype is torch.bfloat16
    torch.testing.assert_close(found, function(x, w))


def test_torchs_operations_take_its_place_without_the_kernel():
    function, *arguments = case("bias_gelu")
    graph = graph_of(function, *arguments)
    assert "aten.special_ndtr" in graph or "aten.erf" in graph
    assert "aten.mm" in graph
    assert "with_epilogue.run" not in graph


def test_it_stays_in_the_graph_for_the_kernel(monkeypatch):
    ran: list[str] = []

    def by_kernel(given, a, b, bias, options):
        ran.append(given.epilogue.name)

    monkeypatch.setattr(epilogue_op, "is_for_kernel", lambda a, b, options: True)
    monkeypatch.setattr(epilogue_op, "by_kernel", by_kernel)
    function, *arguments = case("several")
    graph = graph_of(function, *arguments)
    assert "ops.tiercel.with_epilogue.run" in graph
    assert ran == ["several"]


def test_an_exported_program_finds_its_epilogue(tmp_path):
    function, *arguments = case("bias_gelu")

    class Module(torch.nn.Module):
        def forward(self, x, w, arrays):
            return function(x, w, arrays)

    path = tmp_path / "program.pt2"
    torch.export.save(torch.export.export(Module(), tuple(arguments)), path)
    loaded = torch.export.load(path).module()
    torch.testing.assert_close(loaded(*arguments), function(*arguments))


def test_the_operator_is_as_torch_wants_it():
    for name in CASES:
        _, x, w, arrays = case(name, training=True)
        key = CASES[name][0].key
        numbers = CASES[name][2]
        arguments = (
            x, w.t(), None, key, " ".join([*arrays, *numbers]), [*arrays.values()],
            [*numbers.values()], "",
        )  # fmt: skip
        torch.library.opcheck(torch.ops.tiercel.with_epilogue.default, arguments)


def test_an_epilogue_of_another_process_is_explained():
    x = torch.ones(2, 2)
    with pytest.raises(TiercelValueError, match="'f-0123' is not defined in this process"):
        torch.ops.tiercel.with_epilogue(x, x, None, "f-0123", "", [], [], "")
