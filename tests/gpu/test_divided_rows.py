"""Packed weights whose plan leaves the last rows to torch's product."""

import pytest
import torch

import tiercel
from tests.gpu.portable import error, normal

pytestmark = pytest.mark.gpu

SIZES = 2304, 8192, 8192  # 256 rows are left: three levels take 2048, whose planes are whole tiles


@pytest.fixture(autouse=True)
def ieee_float32():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


def operands() -> tuple[torch.Tensor, torch.Tensor]:
    """A (M, K) and B (K, N), stored as a linear layer's weight is."""
    M, N, K = SIZES
    a = normal(M, K, dtype=torch.float32)
    return a, normal(N, K, dtype=torch.float32, seed=1).t()


@pytest.mark.parametrize("biased", [False, True])
def test_both_parts_of_a_divided_product(biased: bool):
    a, b = operands()
    bias = normal(SIZES[1], dtype=torch.float32, seed=2) if biased else None
    found = tiercel.matmul(a, tiercel.pack(b), bias=bias)
    plan = tiercel.last_plan()
    assert plan is not None
    assert plan.chosen.growth > 1
    M = len(a)
    rows = M - plan.chosen.fringe
    assert 0 < rows < M
    for part, growth in ((slice(rows), 1.5 * plan.chosen.growth), (slice(rows, M), 1.5)):
        wide = a[part].double() @ b.double()
        own = a[part] @ b
        if bias is not None:
            wide, own = wide + bias.double(), own + bias
        assert error(found[part], wide) <= growth * error(own, wide)


def test_a_divided_product_in_a_graph():
    a, b = operands()
    packed = tiercel.pack(b)
    first = tiercel.matmul(a, packed)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = tiercel.matmul(a, packed)
    a.neg_()
    graph.replay()
    assert torch.equal(found, -first)
