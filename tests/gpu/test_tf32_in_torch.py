"""float32 products where torch allows TF32: compiled, in CUDA graphs, on two streams at once."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import tiercel
from tests.gpu.portable import normal

pytestmark = pytest.mark.gpu

SIDE = 4096
#: Errors of products in TF32: less would be IEEE's.
LEAST, MOST = 1e-4, 2e-3

draw = partial(normal, SIDE, SIDE, dtype=torch.float32)
SCHEMES = pytest.mark.parametrize("scheme", [None, "classical", "winograd"])


@pytest.fixture(autouse=True)
def _in_tf32():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision(before)


def assert_in_tf32(found, wanted):
    apart = (found.double() - wanted).norm() / wanted.norm()
    assert LEAST <= apart.item() <= MOST


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@SCHEMES
def test_compiled_whole_with_gradients(scheme, backend):
    @partial(torch.compile, fullgraph=True, backend=backend)
    def function(x, w, bias):
        return tiercel.linear(x, w, bias, scheme=scheme) * 2

    for seed in range(2):
        x, w = (draw(seed=seed + i).requires_grad_() for i in (0, 10))
        bias, g = normal(SIDE, dtype=torch.float32, seed=20), draw(seed=30)
        y = function(x, w, bias)
        y.backward(g)
        assert scheme is None or tiercel.last_plan().problem.dtype == "tfloat32"
        wide, right, above = x.detach().double(), w.detach().double(), 2 * g.double()
        assert_in_tf32(y.detach(), 2 * (wide @ right.t() + bias.double()))
        assert_in_tf32(x.grad, above @ right)
        assert_in_tf32(w.grad, above.t() @ wide)


def test_a_compiled_model_follows_the_switch():
    model = nn.Sequential(nn.Linear(SIDE, SIDE), nn.ReLU(), nn.Linear(SIDE, SIDE)).cuda()
    exact, x = F.linear, draw()
    with torch.no_grad(), tiercel.patch(model):
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        first, _, second = model
        for precision, (least, most) in 2 * [("high", (LEAST, MOST)), ("highest", (0, 1e-5))]:
            torch.set_float32_matmul_precision(precision)
            hidden = exact(x.double(), first.weight.double(), first.bias.double()).relu()
            wanted = exact(hidden, second.weight.double(), second.bias.double())
            apart = (compiled(x).double() - wanted).norm() / wanted.norm()
            assert least <= apart.item() <= most


@SCHEMES
def test_captured(scheme):
    a, b = draw(), draw(seed=1)
    multiply = partial(tiercel.matmul, a, b, scheme=scheme)
    for _ in range(2):
        multiply()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = multiply()
    for seed in range(2):
        a.copy_(draw(seed=seed + 5))
        graph.replay()
        assert_in_tf32(found, a.double() @ b.double())
    a[7] *= 1e6  # which no scheme may spread over other rows
    graph.replay()
    small = torch.arange(SIDE, device="cuda") != 7
    assert_in_tf32(found[small], a[small].double() @ b.double())


def test_captured_training_step():
    layer = nn.Linear(SIDE, SIDE, device="cuda")
    x, g = draw().requires_grad_(), draw(seed=1)

    def step():
        x.grad = layer.weight.grad = layer.bias.grad = None
        layer(x).backward(g)

    with tiercel.patch(layer):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        for seed in range(2):
            g.copy_(draw(seed=seed + 5))
            graph.replay()
            assert_in_tf32(x.grad, g.double() @ layer.weight.detach().double())
            assert_in_tf32(layer.weight.grad, g.double().t() @ x.detach().double())


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("schemes", [("winograd", "winograd"), ("winograd", "classical")])
def test_two_streams_at_once(schemes, packed):
    works = []
    for i, scheme in enumerate(schemes):
        a, b = draw(seed=i), normal(SIDE, SIDE, dtype=torch.float32, seed=i + 5).t()
        right = tiercel.pack(b, scheme=scheme) if packed and scheme == "winograd" else b
        works.append(partial(tiercel.matmul, a, right, scheme=scheme))
    alone = [work() for work in works]
    streams = [torch.cuda.Stream() for _ in works]
    wrong = [torch.zeros((), device="cuda", dtype=torch.int64) for _ in works]
    torch.cuda.synchronize()
    for _ in range(40):
        for work, stream, wanted, count in zip(works, streams, alone, wrong, strict=True):
            with torch.cuda.stream(stream):
                count += (work() != wanted).sum()
    torch.cuda.synchronize()
    assert [count.item() for count in wrong] == [0, 0]
