"""Clusters that keep pace on the device: exact integers, the same bits, graphs and streams."""

from __future__ import annotations

import pytest
import torch

from tiercel.lower.epilogue import library
from tiercel.targets.hopper import available, gemm, gemm_epilogue, gemm_scaled
from tiercel.targets.hopper.config import Tile
from tiercel.targets.hopper.epilogues import product as with_epilogue
from tiercel.targets.hopper.products import heuristic, paced, product, scaled
from tiercel.targets.hopper.products.stream_k import SharedLaunch

pytestmark = pytest.mark.gpu
SHAPE = 2304, 2816, 8192  # 9 x 11 cluster tiles of 256 x 256: 33 for the last turn


@pytest.fixture(autouse=True)
def _short_products_keep_pace(monkeypatch: pytest.MonkeyPatch):
    assert available(torch.cuda.current_device()) is None
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    monkeypatch.setattr(paced, "LEAST_K_TILES", 1)
    for kept in (product._ready, scaled._ready, with_epilogue._ready):
        kept.clear()
    yield
    for kept in (product._ready, scaled._ready, with_epilogue._ready):
        kept.clear()


def integers(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randint(-3, 4, shape, device="cuda").to(dtype)


@pytest.mark.parametrize("shape", [SHAPE, (512, 512, 65536), (4096, 2048, 128), (300, 200, 72)])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn"])
def test_products_are_exact(shape: tuple[int, int, int], layout: str):
    M, N, K = shape
    M -= M % 8
    a = integers(K, M).t() if layout[0] == "t" else integers(M, K)
    b = integers(N, K).t() if layout[1] == "t" else integers(K, N)
    out = torch.full((M, N), float("nan"), device="cuda", dtype=torch.float32)
    gemm(a, b, out=out, config=None if layout == "nn" else heuristic.LARGE)
    assert torch.equal(out, a.float() @ b.float())


@pytest.mark.parametrize("layout", ["nn", "nt", "tt"])
def test_paced_tf32_is_exact(layout: str):
    M, N, K = SHAPE
    a = integers(K, M, dtype=torch.float32).t() if layout[0] == "t" else integers(M, K).float()
    b = integers(N, K).float().t() if layout[1] == "t" else integers(K, N).float()
    out = gemm(a, b, out=torch.full((M, N), float("nan"), device="cuda"), tf32=True)
    assert torch.equal(out, a @ b)


@pytest.mark.parametrize("fast", [True, False])
def test_paced_float8_is_exact(fast: bool):
    M, N, K = SHAPE
    a, b = (integers(n, K, dtype=torch.float8_e4m3fn) for n in (M, N))
    scale_a, scale_b = (torch.ones(shape, device="cuda") for shape in ((M, 1), (1, N)))
    out = gemm_scaled(a, b.t(), scale_a, scale_b, fast_accumulation=fast)
    assert torch.equal(out, (a.float() @ b.float().t()).bfloat16())


@pytest.mark.parametrize("tile", heuristic.CANDIDATES[:3], ids=str)
def test_epilogues(tile: Tile):
    M, N, K = SHAPE
    a, b, bias = integers(M, K), integers(N, K).t(), integers(N)
    with_bias = gemm_epilogue(a, b, library.bias, {"bias": bias}, config=tile)["out"]
    assert torch.equal(with_bias, (a.float() @ b.float() + bias.float()).bfloat16())
    ready = list(with_epilogue._ready.values())[-1]
    assert ready.launch.paced_word >= 0
    reduced = [gemm_epilogue(a, b, library.rms_statistics, {}, config=tile) for _ in range(3)]
    squares = (a.double() @ b.double()).square().sum(-1, keepdim=True)
    for found in reduced:
        torch.testing.assert_close(found["sum_of_squares"].double(), squares, rtol=1e-5, atol=0)


def test_graphs_and_streams_keep_a_pace_of_their_own():
    M, N, K = SHAPE
    a, b = (torch.randn(n, K, device="cuda", dtype=torch.bfloat16) for n in (M, N))
    wanted = gemm(a, b.t())
    launch = list(product._ready.values())[-1].launch
    assert isinstance(launch, SharedLaunch)
    assert launch.paced_word >= 0
    outs = [torch.full_like(wanted, float("nan")) for _ in range(4)]
    graphs = [torch.cuda.CUDAGraph() for _ in range(2)]
    for graph, out in zip(graphs, outs[:2], strict=True):
        with torch.cuda.graph(graph):
            gemm(a, b.t(), out=out)
            gemm(a, b.t(), out=out)
    streams = [torch.cuda.Stream() for _ in range(4)]
    torch.cuda.synchronize()
    for _ in range(10):
        for stream, graph in zip(streams[:2], graphs, strict=True):
            with torch.cuda.stream(stream):
                graph.replay()
        for stream, out in zip(streams[2:], outs[2:], strict=True):
            with torch.cuda.stream(stream):
                gemm(a, b.t(), out=out)
    torch.cuda.synchronize()
    assert all(torch.equal(out, wanted) for out in outs)
