"""The plain Hopper kernel on the device, judged by exact integers."""

import random

import pytest
import torch
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from tiercel.errors import TiercelError, TiercelTypeError, TiercelValueError
from tiercel.targets.hopper import Tile, available, gemm
from tiercel.targets.hopper.products import heuristic

pytestmark = pytest.mark.gpu

TILES = {
    **{str(tile): tile for tile in heuristic.CANDIDATES},
    "shared A": Tile(256, 128, 4, "cooperative", cluster_n=2),
    "largest": heuristic.LARGE,
}
COLUMNS = [
    *heuristic.K_MAJOR, Tile(64, 224, 5, "pingpong", cluster_m=2), Tile(128, 96, 6, "cooperative"),
    Tile(256, 160, 3, "cooperative", cluster_n=2),
]  # fmt: skip
SIZES = [(1, 1, 1), (1, 8, 64), (129, 257, 65), (300, 712, 200), (2000, 3000, 576)]


@pytest.fixture(autouse=True, scope="module")
def _device():
    assert available(torch.cuda.current_device()) is None
    torch.backends.cuda.matmul.allow_tf32 = False


def integers(rows: int, columns: int, dtype: torch.dtype, transposed: bool, batch=()):
    """Small integers, in rows of a multiple of 16 bytes (columns, if ``transposed``)."""
    if transposed:
        return integers(columns, rows, dtype, False, batch).transpose(-1, -2)
    padded = -(-columns // 8) * 8
    values = torch.randint(-3, 4, (*batch, rows, padded), device="cuda").to(dtype)
    return values[..., :columns]


def poisoned(rows: int, columns: int, dtype: torch.dtype, batch=()):
    padded = -(-columns // 8) * 8
    return torch.full((*batch, rows, padded), float("nan"), device="cuda", dtype=dtype)


def exact(a, b, dtype, alpha=1.0, beta=0.0, c=None):
    """Sums of small integers are exact in float32; one rounding is left."""
    product = alpha * (a.float() @ b.float())
    return (product if c is None else product + beta * c.float()).to(dtype)


@pytest.mark.parametrize("tile", TILES.values(), ids=TILES)
@pytest.mark.parametrize("a_transposed", [False, True])
@pytest.mark.parametrize("b_transposed", [False, True])
def test_every_layout_is_exact(tile: Tile, a_transposed: bool, b_transposed: bool):
    a = integers(300, 200, torch.bfloat16, a_transposed)
    b = integers(200, 712, torch.bfloat16, b_transposed)
    whole = poisoned(300, 712, torch.bfloat16)
    gemm(a, b, out=whole[:, :712], config=tile)
    assert torch.equal(whole[:, :712], exact(a, b, torch.bfloat16))


@pytest.mark.parametrize(("M", "N", "K"), SIZES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("tile", heuristic.CANDIDATES[:2], ids=str)
def test_sizes_leave_padding_alone(M: int, N: int, K: int, dtype: torch.dtype, tile: Tile):
    a, b = integers(M, K, dtype, False), integers(K, N, dtype, True)
    whole = poisoned(M, N, dtype)
    gemm(a, b, out=whole[:, :N], config=tile)
    assert torch.equal(whole[:, :N], exact(a, b, dtype))
    assert whole[:, N:].isnan().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("M", "N", "K"), SIZES)
@pytest.mark.parametrize("tile", COLUMNS, ids=str)
def test_columns_that_are_no_multiple_of_64(tile: Tile, M: int, N: int, K: int, dtype: torch.dtype):
    a = integers(M, K, torch.bfloat16, False)
    b = integers(K, N, torch.bfloat16, True)
    whole = poisoned(M, N, dtype)
    gemm(a, b, out=whole[:M, :N], config=tile)
    assert torch.equal(whole[:M, :N], exact(a, b, dtype))
    whole[:M, :N] = float("nan")
    assert whole.isnan().all()
    c = torch.randint(-3, 4, (M, N + N % 2), device="cuda").to(dtype)[:, :N]
    got = gemm(a, b, out=torch.empty_like(whole)[:M, :N], c=c, beta=2.0, config=tile)
    assert torch.equal(got, exact(a, b, dtype, 1.0, 2.0, c))


@pytest.mark.parametrize("k_tiles", [1, 2, 3, 4, 5, 7, 8, 9])
@pytest.mark.parametrize("tile", heuristic.CANDIDATES[:2], ids=str)
def test_depths_around_the_ring(k_tiles: int, tile: Tile):
    a, b = (integers(700, 64 * k_tiles, torch.float16, False) for _ in range(2))
    assert torch.equal(gemm(a, b.t(), config=tile), exact(a, b.t(), torch.float16))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("tile", heuristic.CANDIDATES[:2], ids=str)
def test_output_types_and_addition(dtype: torch.dtype, tile: Tile):
    a, b = integers(301, 128, torch.bfloat16, False), integers(128, 301, torch.bfloat16, False)
    c = integers(301, 301, dtype, False)
    out = poisoned(301, 301, dtype)[:, :301]
    gemm(a, b, out=out, alpha=0.5, beta=2.0, c=c, config=tile)
    assert torch.equal(out, exact(a, b, dtype, 0.5, 2.0, c))


@pytest.mark.parametrize("tile", heuristic.CANDIDATES[:2], ids=str)
def test_batches_and_broadcasting(tile: Tile):
    a = integers(300, 128, torch.bfloat16, False, batch=(3,))
    b = integers(128, 200, torch.bfloat16, False, batch=(3,))
    assert torch.equal(gemm(a, b, config=tile), exact(a, b, torch.bfloat16))
    assert torch.equal(gemm(a, b[:1], config=tile), exact(a, b[:1], torch.bfloat16))
    same = a[:1].expand(3, -1, -1)
    assert torch.equal(gemm(same, b, config=tile), exact(same, b, torch.bfloat16))


@pytest.mark.parametrize("M", [16, 64, 120])
@pytest.mark.parametrize(("N", "K"), [(512, 4096), (1000, 2048)])
def test_split_products(M: int, N: int, K: int):
    choice = heuristic.choose(M, N, K, 1, 132)
    assert choice.parts * choice.tile.cluster_k > 1
    a, b = integers(M, K, torch.bfloat16, False), integers(K, N, torch.bfloat16, True)
    first = gemm(a, b)
    assert torch.equal(first, exact(a, b, torch.bfloat16))
    assert torch.equal(first, gemm(a, b))


def test_outputs_that_tma_cannot_address():
    a, b = integers(300, 128, torch.bfloat16, False), integers(128, 201, torch.bfloat16, False)
    assert torch.equal(gemm(a, b), exact(a, b, torch.bfloat16))  # rows of 402 bytes
    odd = torch.full((300 * 201 + 1,), float("nan"), device="cuda", dtype=torch.bfloat16)
    out = odd[1:].view(300, 201)
    gemm(a, b, out=out)
    assert torch.equal(out, exact(a, b, torch.bfloat16))
    assert odd[0].isnan()


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("tile", heuristic.CANDIDATES[:2], ids=str)
@pytest.mark.parametrize(("M", "N", "K"), [(300, 712, 208), (128, 256, 1024)])
def test_float8_is_exact_for_small_integers(dtype: torch.dtype, tile: Tile, M: int, N: int, K: int):
    a, b = integers(M, K, torch.float32, False), integers(N, K, torch.float32, False)
    got = gemm(a.to(dtype), b.to(dtype).t(), alpha=0.5, config=tile)
    assert torch.equal(got, exact(a, b.t(), torch.bfloat16, 0.5))


@pytest.mark.parametrize("tile", heuristic.CANDIDATES[:2], ids=str)
def test_tf32_is_exact_for_integers_and_as_accurate_as_torch(tile: Tile):
    a, b = integers(300, 200, torch.float32, False), integers(712, 200, torch.float32, False)
    assert torch.equal(gemm(a, b.t(), tf32=True, config=tile), exact(a, b.t(), torch.float32))
    a, b = torch.randn(512, 2048, device="cuda"), torch.randn(512, 2048, device="cuda")
    reference = a.double() @ b.double().t()

    def error(x):
        return ((x - reference).norm() / reference.norm()).item()

    torch.backends.cuda.matmul.allow_tf32 = True
    vendor = a @ b.t()
    torch.backends.cuda.matmul.allow_tf32 = False
    assert error(gemm(a, b.t(), tf32=True, config=tile)) <= 1.05 * error(vendor)


def test_column_major_output():
    a, b = integers(300, 128, torch.bfloat16, False), integers(128, 200, torch.bfloat16, False)
    out = poisoned(200, 300, torch.bfloat16)[:, :300].t()
    assert torch.equal(gemm(a, b, out=out), exact(a, b, torch.bfloat16))


def test_side_stream_and_graph():
    a, b = integers(512, 512, torch.bfloat16, False), integers(512, 512, torch.bfloat16, False)
    out = torch.empty_like(a)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        gemm(a, b, out=out)
    out.zero_()
    graph.replay()
    assert torch.equal(out, exact(a, b, torch.bfloat16))


@pytest.mark.parametrize("b_transposed", [False, True])
def test_later_turns_and_repeated_bits(b_transposed: bool):
    """Three turns of each multiprocessor; the second one goes backwards along K."""
    a = integers(4000, 328, torch.bfloat16, False)
    b = integers(328, 6000, torch.bfloat16, b_transposed)
    assert torch.equal(gemm(a, b), exact(a, b, torch.bfloat16))
    a, b = (torch.randn(s, device="cuda").bfloat16() for s in ((4000, 328), (328, 6000)))
    first = gemm(a, b)
    assert torch.equal(first, gemm(a, b, out=torch.empty_like(first)))


SIZE = st.one_of(st.integers(1, 300), st.integers(1, 3000))


def test_random_cases():
    chosen = random.randrange(2**32)
    print("seed", chosen)

    @seed(chosen)
    @settings(max_examples=200, deadline=None, database=None)
    @given(SIZE, SIZE, SIZE, st.sampled_from([torch.bfloat16, torch.float16]), *[st.booleans()] * 2)
    def case(M: int, N: int, K: int, dtype: torch.dtype, a_transposed: bool, b_transposed: bool):
        a, b = integers(M, K, dtype, a_transposed), integers(K, N, dtype, b_transposed)
        whole = poisoned(M, N, dtype)
        gemm(a, b, out=whole[:, :N])
        assert torch.equal(whole[:, :N], exact(a, b, dtype))
        assert whole[:, N:].isnan().all()

    case()


def test_an_output_of_more_than_two_to_the_31_elements():
    a, b = (integers(46_400, 16, torch.bfloat16, False) for _ in range(2))
    out = torch.full((46_400, 46_400), float("nan"), device="cuda", dtype=torch.bfloat16)
    assert out.numel() > 2**31
    gemm(a, b.t(), out=out)
    for rows in (slice(0, 300), slice(20_000, 20_300), slice(-300, None)):
        assert torch.equal(out[rows], exact(a[rows], b.t(), torch.bfloat16))
    gemm(a, b.t(), out=out, c=out, beta=1.0)
    assert torch.equal(out[-300:], exact(a[-300:], b.t(), torch.bfloat16, 2.0))
    assert not out[:, ::97].isnan().any()


def test_error_is_the_vendors():
    a, b = torch.randn(512, 4096, device="cuda"), torch.randn(4096, 768, device="cuda")
    a, b = a.bfloat16(), b.bfloat16()
    reference = a.double() @ b.double()

    def error(x):
        return (x.double() - reference).norm() / reference.norm()

    assert error(gemm(a, b)) <= 1.05 * error(a @ b)


def test_empty_output():
    a, b = integers(8, 64, torch.bfloat16, False), integers(64, 8, torch.bfloat16, False)
    assert gemm(a[:0], b).shape == (0, 8)


def test_refusals_name_the_argument():
    a, b = integers(64, 64, torch.bfloat16, False), integers(64, 64, torch.bfloat16, False)
    with pytest.raises(TiercelTypeError, match="a is bfloat16 and b is float16"):
        gemm(a, b.half())
    with pytest.raises(TiercelValueError, match="columns and b has"):
        gemm(a, b[:32])
    with pytest.raises(TiercelValueError, match="address"):
        gemm(torch.empty(4097, device="cuda", dtype=torch.bfloat16)[1:].view(64, 64), b)
    with pytest.raises(TiercelValueError, match="strides"):
        gemm(torch.empty(64, 67, device="cuda", dtype=torch.bfloat16)[:, :64], b)
    with pytest.raises(TiercelError, match="one CUDA device"):
        gemm(a, b.cpu())
