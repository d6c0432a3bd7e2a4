"""``verify=True`` on a GPU: sound products pass, wrong ones are replaced without waiting."""

import pytest
import torch

import tiercel
from tests.gpu.portable import DTYPES, normal, wide
from tiercel.frontends.torch import verify
from tiercel.frontends.torch.cuda import run
from tiercel.frontends.torch.probe import exceeded
from tiercel.planner.gpu.accuracy import growth
from tiercel.planner.gpu.plan import GpuPlan
from tiercel.planner.gpu.variants import named

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def nothing_learnt():
    verify.forget()
    yield
    verify.forget()


@pytest.mark.parametrize("dtype", DTYPES)
def test_sound_products_pass(dtype: torch.dtype):
    a, b = normal(1000, 1500, dtype=dtype), normal(1500, 700, dtype=dtype, seed=1)
    stack = a.expand(2, -1, -1).contiguous()
    assert not any(exceeded(a, b, a @ b, None, 1.0) for _ in range(20))
    assert not exceeded(stack, b.expand(2, -1, -1), stack @ b, None, 1.0)


@pytest.mark.parametrize(
    ("dtype", "error"), [(torch.float32, 1e-3), (torch.float64, 1e-9), (torch.bfloat16, 0.5)]
)
def test_a_wrong_block_is_always_found(dtype: torch.dtype, error: float):
    a, b = normal(1024, 1024, dtype=dtype), normal(1024, 1024, dtype=dtype, seed=1)
    sound, found = a @ b, 0
    for i in range(100):
        c = sound.clone()
        c[7 * i : 7 * i + 64, 9 * i : 9 * i + 64] *= 1 + error
        found += exceeded(a, b, c, None, 8.0).item()
    assert found == 100


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_wrong_product_is_replaced_and_its_levels_are_given_up(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
):
    a, b = normal(4096, 4096, dtype=dtype), normal(4096, 4096, dtype=dtype, seed=1)
    bias = normal(4096, dtype=dtype, seed=2)
    reference = wide(a) @ wide(b) + wide(bias)
    limit = 1e-4 if dtype is torch.float32 else 1e-12
    real, ran = run._RUN["portable"], []

    def wrong(plan: GpuPlan, request, out: torch.Tensor) -> None:
        real(plan, request, out)
        ran.append(plan.chosen.algorithm)
        out[100:164, 200:264] *= 1.001

    monkeypatch.setitem(run._RUN, "portable", wrong)
    for _ in range(3):
        c = tiercel.matmul(a, b, bias=bias, verify=True)
        torch.cuda.synchronize()
        assert ((wide(c) - reference).norm() / reference.norm()).item() < limit
    growths = [growth(named(name), str(dtype).removeprefix("torch.")) for name in ran]
    assert ran[0] == "strassen2"
    assert growths[1] < growths[0]


def test_a_graph_repairs_itself(monkeypatch: pytest.MonkeyPatch):
    a, b = normal(4096, 4096, dtype=torch.float32), normal(4096, 4096, dtype=torch.float32, seed=1)
    real = run._RUN["portable"]
    error = torch.zeros((), device="cuda")

    def maybe_wrong(plan: GpuPlan, request, out: torch.Tensor) -> None:
        real(plan, request, out)
        out[100:164, 200:264] *= 1 + error

    monkeypatch.setitem(run._RUN, "portable", maybe_wrong)
    tiercel.matmul(a, b, verify=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        c = tiercel.matmul(a, b, verify=True)
    reference = wide(a) @ wide(b)
    for fault in (0.0, 0.01):
        error.fill_(fault)
        graph.replay()
        assert ((wide(c) - reference).norm() / reference.norm()).item() < 1e-5


def test_nothing_is_waited_for():
    a, b = normal(4096, 4096, dtype=torch.float32), normal(4096, 4096, dtype=torch.float32, seed=1)
    for _ in range(2):
        tiercel.matmul(a, b, verify=True)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        tiercel.matmul(a, b, verify=True)
    finally:
        torch.cuda.set_sync_debug_mode("default")
