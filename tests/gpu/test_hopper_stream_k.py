"""The shared last turn on the device: exact integers, the same bits, graphs and streams."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from tiercel.targets.hopper import available, gemm, gemm_scaled
from tiercel.targets.hopper.products import heuristic, product, stream_k
from tiercel.targets.hopper.products.stream_k import SharedLaunch

pytestmark = pytest.mark.gpu
SHAPE = 2304, 2816, 8192  # 9 x 11 cluster tiles of 256 x 256: 33 for the last turn


@pytest.fixture(autouse=True, scope="module")
def _device():
    assert available(torch.cuda.current_device()) is None
    torch.backends.cuda.matmul.allow_tf32 = False


def integers(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randint(-3, 4, shape, device="cuda").to(dtype)


def test_sums_of_helpers_are_added():
    M, N, K = SHAPE
    a, b = integers(M, K), integers(N, K).t()
    out = torch.full((M, N), float("nan"), device="cuda", dtype=torch.bfloat16)
    gemm(a, b, out=out)
    assert isinstance(list(product._ready.values())[-1].launch, SharedLaunch)
    assert torch.equal(out, (a.float() @ b.float()).bfloat16())


@given(
    st.integers(2100, 6000), st.integers(270, 700).map(lambda n: 8 * n),
    st.integers(100, 700).map(lambda k: 8 * k), st.sampled_from(["nn", "nt", "tn", "tt"]),
    st.sampled_from([torch.bfloat16, torch.float16, torch.float32]),
)  # fmt: skip
@seed(0)
@settings(max_examples=40, deadline=None)
def test_any_size(M: int, N: int, K: int, layout: str, output: torch.dtype):
    M -= M % 8
    a = integers(K, M).t() if layout[0] == "t" else integers(M, K)
    b = integers(N, K).t() if layout[1] == "t" else integers(K, N)
    out = torch.full((M, N), float("nan"), device="cuda", dtype=output)
    if output == torch.float16:
        a, b = a.half(), b.half()
    gemm(a, b, out=out)
    assert torch.equal(out, (a.float() @ b.float()).to(output))


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("rows", [True, False])
def test_shared_float8_tiles_are_exact(rows: bool, fast: bool):
    M, N, K = SHAPE
    a, b = (integers(n, K, dtype=torch.float8_e4m3fn) for n in (M, N))
    scales = (2.0 ** torch.randint(-2, 3, shape, device="cuda") for shape in ((M, 1), (1, N)))
    scale_a, scale_b = scales if rows else torch.ones(2, device="cuda")
    out = gemm_scaled(a, b.t(), scale_a, scale_b, fast_accumulation=fast)
    wanted = (a.float() @ b.float().t()) * scale_a * scale_b
    assert torch.equal(out, wanted.bfloat16())


@pytest.mark.parametrize("layout", ["nn", "nt", "tt"])
def test_shared_tf32_tiles_are_exact(layout: str):
    M, N, K = SHAPE
    a = integers(K, M, dtype=torch.float32).t() if layout[0] == "t" else integers(M, K).float()
    b = integers(N, K).float().t() if layout[1] == "t" else integers(K, N).float()
    out = gemm(a, b, out=torch.full((M, N), float("nan"), device="cuda"), tf32=True)
    assert torch.equal(out, a @ b)


def test_the_same_bits_each_time_and_flags_are_left_cleared():
    a, b = (torch.randn(n, 1024, device="cuda", dtype=torch.bfloat16) for n in (4096, 4096))
    first = gemm(a, b.t())
    for _ in range(20):
        assert torch.equal(gemm(a, b.t()), first)
    torch.cuda.synchronize()
    for (_, _, blocks), memory in stream_k._eager.items():
        flags = memory[stream_k.SUMS * blocks : -1]  # behind them a counter, which launches clear
        assert int(flags.view(torch.int32).abs().sum()) == 0


def test_graphs_and_streams_have_memory_of_their_own():
    M, N, K = SHAPE
    a, b = integers(M, K), integers(N, K).t()
    wanted = (a.float() @ b.float()).bfloat16()
    outs = [torch.empty_like(wanted) for _ in range(4)]
    graphs = [torch.cuda.CUDAGraph() for _ in range(2)]
    for graph, out in zip(graphs, outs[:2], strict=True):
        with torch.cuda.graph(graph):
            gemm(a, b, out=out)
            gemm(a, b, out=out)
    streams = [torch.cuda.Stream() for _ in range(4)]
    for out in outs:
        out.fill_(float("nan"))
    torch.cuda.synchronize()
    for _ in range(10):
        for stream, graph in zip(streams[:2], graphs, strict=True):
            with torch.cuda.stream(stream):
                graph.replay()
        for stream, out in zip(streams[2:], outs[2:], strict=True):
            with torch.cuda.stream(stream):
                gemm(a, b, out=out)
    torch.cuda.synchronize()
    assert all(torch.equal(out, wanted) for out in outs)


def test_a_fixed_tile_keeps_to_one_order_of_summation():
    a, b = integers(SHAPE[0], SHAPE[2]), integers(SHAPE[1], SHAPE[2]).t()
    gemm(a, b, config=heuristic.CANDIDATES[0])
    assert not isinstance(list(product._ready.values())[-1].launch, SharedLaunch)
