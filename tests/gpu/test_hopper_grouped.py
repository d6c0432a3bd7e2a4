"""The grouped Hopper kernel on the device, judged by exact integers."""

import random

import pytest
import torch

import tiercel
from tiercel import epilogues
from tiercel.errors import TiercelError, TiercelTypeError, TiercelValueError
from tiercel.targets.hopper import Tile, available, grouped_gemm
from tiercel.targets.hopper.products.heuristic import GROUPED, PINGPONG

pytestmark = pytest.mark.gpu

TILES = {
    "cooperative": GROUPED[0],
    "pingpong": PINGPONG,
    "A shared": Tile(128, 128, 6, "pingpong", cluster_n=2),
    "alone": Tile(64, 128, 8, "pingpong"),
}
SIZES = {
    "equal": [128] * 4,
    "empty ones": [0, 300, 0, 0, 1, 64, 0],
    "tails": [1, 63, 64, 65, 127, 129, 255, 257, 513],
    "one": [700],
    "odd and even": [128, 256, 384, 640],  # rows of tiles of 128
    "many": [i % 5 for i in range(512)],
    "nothing": [0, 0],
}


@pytest.fixture(autouse=True, scope="module")
def _device():
    assert available(torch.cuda.current_device()) is None


def integers(*shape: int, dtype=torch.bfloat16):
    return torch.randint(-3, 4, shape, device="cuda").to(dtype)


def ends_of(sizes, dtype=torch.int32):
    return torch.tensor(sizes, device="cuda").cumsum(0).to(dtype)


def exact(a, b, sizes, dtype=torch.bfloat16):
    """Sums of small integers are exact in float32, which leaves one rounding; 0 behind groups."""
    out = torch.zeros(a.shape[0], b.shape[-1], device="cuda")
    start = 0
    for group, size in enumerate(sizes):
        out[start : start + size] = a[start : start + size].float() @ b[group].float()
        start += size
    return out.to(dtype)


def poisoned(rows: int, columns: int, dtype=torch.bfloat16):
    """An output amid NaN, and whether that is still there."""
    whole = torch.full((rows + 2, columns + 16), float("nan"), device="cuda", dtype=dtype)
    out = whole[1:-1, 8:-8]

    def intact() -> bool:
        return bool(whole.isnan().sum() == whole.numel() - out.numel())

    return out, intact


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("tile", TILES.values(), ids=TILES)
def test_groups_do_not_spill(tile, sizes: list[int]):
    M = sum(sizes) + 37
    a, b = integers(M, 192), integers(len(sizes), 192, 264)
    out, intact = poisoned(M, 264)
    assert grouped_gemm(a, b, ends_of(sizes), out=out, config=tile) is out
    assert torch.equal(out, exact(a, b, sizes))
    assert intact()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("b_transposed", [False, True])
@pytest.mark.parametrize("tile", TILES.values(), ids=TILES)
def test_every_layout_is_exact(tile, b_transposed: bool, dtype: torch.dtype):
    sizes = [100, 0, 204]
    a = integers(304, 232, dtype=dtype)[:, :200]
    b = integers(*((3, 520, 200) if b_transposed else (3, 200, 520)), dtype=dtype)
    b = b.mT if b_transposed else b
    out = grouped_gemm(a, b, ends_of(sizes), config=tile)
    assert torch.equal(out, exact(a, b, sizes, dtype))


def test_float16_matches_its_reference():
    sizes = [300, 0, 17, 195]
    a, b = (torch.randn(s, device="cuda").half() for s in ((512, 1024), (4, 1024, 264)))
    out, start = grouped_gemm(a, b, ends_of(sizes)), 0
    for group, size in enumerate(sizes):
        rows = slice(start, start + size)
        wanted = a[rows].double() @ b[group].double()
        assert (out[rows].double() - wanted).norm() <= 5e-4 * wanted.norm()
        start += size


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_offsets_may_begin_with_zero(dtype: torch.dtype):
    sizes = [70, 0, 130]
    a, b = integers(200, 64), integers(3, 64, 128)
    ends = ends_of(sizes, dtype)
    whole = torch.cat((torch.zeros_like(ends[:1]), ends))
    for offsets in (ends, whole):
        assert torch.equal(grouped_gemm(a, b, offsets), exact(a, b, sizes))


def test_offsets_outside_the_rows_write_nothing_else():
    a, b = integers(100, 64), integers(3, 64, 128)
    out, intact = poisoned(100, 128)
    grouped_gemm(a, b, torch.tensor([-5, 40, 10**6], device="cuda"), out=out)
    assert torch.equal(out, exact(a, b, [0, 40, 60]))
    assert intact()


def test_float16_and_rows_that_tma_cannot_store():
    sizes = [5, 300]
    a, b = integers(305, 128, dtype=torch.float16), integers(2, 104, 128, dtype=torch.float16).mT
    assert torch.equal(grouped_gemm(a, b, ends_of(sizes)), exact(a, b, sizes, torch.float16))
    with pytest.raises(TiercelValueError, match="rows of 200 bytes"):
        grouped_gemm(a, b[..., :100], ends_of(sizes))


def test_float8_groups_are_exact():
    sizes = [100, 28, 300]
    a, b = integers(428, 256), integers(3, 512, 256)
    kind = torch.float8_e4m3fn
    out = grouped_gemm(a.to(kind), b.to(kind).mT, ends_of(sizes))
    assert torch.equal(out, exact(a, b.mT, sizes))


@tiercel.epilogue(bias="row", weight="column")
def expert(acc, bias, weight, scale=1.0):
    """A gated activation after a bias of each group, weighted by row."""
    return epilogues.swiglu(acc * scale + bias) * weight


def test_epilogues_stay_within_their_group():
    sizes = [100, 0, 37, 163]
    a, b = (torch.randn(s, device="cuda").bfloat16() for s in ((310, 192), (4, 192, 528)))
    bias = torch.randn(4, 1, 528, device="cuda").bfloat16()
    weight = torch.rand(310, 1, device="cuda")
    out, intact = poisoned(310, 264)
    operands = {"bias": bias, "weight": weight, "scale": 0.5}
    grouped_gemm(a, b, ends_of(sizes), epilogue=expert, operands=operands, out=out)
    start = 0
    for group, size in enumerate(sizes):
        rows = slice(start, start + size)
        acc = (a[rows].double() @ b[group].double()).cpu().numpy()
        given = {"bias": bias[group].double().cpu().numpy(), "weight": weight[rows].cpu().numpy()}
        wanted = torch.from_numpy(expert.evaluate(acc, {**given, "scale": 0.5})["out"])
        assert (out[rows].cpu().double() - wanted).norm() <= 5e-3 * wanted.norm()
        start += size
    assert (out[start:] == 0).all()
    assert intact()


def test_epilogues_with_other_outputs_are_refused():
    a, b, ends = integers(64, 64), integers(2, 64, 64), ends_of([32, 32])
    with pytest.raises(TiercelValueError, match="stores one output"):
        grouped_gemm(a, b, ends, epilogue=epilogues.rms_statistics)
    with pytest.raises(TiercelValueError, match=r"residual has shape \(2, 64, 64\)"):
        grouped_gemm(a, b, ends, epilogue=epilogues.residual, operands={"residual": b})


def test_follows_the_offsets_of_a_graph():
    a, b, ends = integers(256, 64), integers(2, 64, 64), ends_of([100, 156])
    grouped_gemm(a, b, ends)  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = grouped_gemm(a, b, ends)
    for sizes in ([100, 156], [256, 0], [3, 250]):
        ends.copy_(ends_of(sizes))
        graph.replay()
        assert torch.equal(out, exact(a, b, sizes))


def test_random_cases():
    seed = random.randrange(2**32)
    print("seed", seed)
    pick = random.Random(seed)
    for _ in range(40):
        groups, K, N = pick.randint(1, 40), 8 * pick.randint(1, 60), 8 * pick.randint(1, 120)
        sizes = [pick.choice([0, pick.randint(1, 20), pick.randint(1, 400)]) for _ in range(groups)]
        M = sum(sizes) + pick.choice([0, pick.randint(1, 300)])
        a, b = integers(max(M, 1), K), integers(groups, K, N)
        out, intact = poisoned(max(M, 1), N)
        grouped_gemm(a, b, ends_of(sizes), out=out)
        assert torch.equal(out, exact(a, b, sizes)), (sizes, M, N, K, seed)
        assert intact()


def test_refusals_name_the_argument():
    a, b, ends = integers(64, 64), integers(2, 64, 64), ends_of([32, 32])
    with pytest.raises(TiercelValueError, match="out is float32 64x64; allowed: bfloat16 64x64"):
        grouped_gemm(a, b, ends, out=a.float())
    with pytest.raises(TiercelTypeError, match="offsets are float32"):
        grouped_gemm(a, b, ends.float())
    with pytest.raises(TiercelValueError, match="offsets have shape"):
        grouped_gemm(a, b, ends[:1])
    with pytest.raises(TiercelValueError, match="columns and b 32 rows"):
        grouped_gemm(a, b[:, :32], ends)
    with pytest.raises(TiercelValueError, match="rows of a must be contiguous"):
        grouped_gemm(a.t(), b, ends)
    with pytest.raises(TiercelTypeError, match="a is bfloat16 and b is float16"):
        grouped_gemm(a, b.half(), ends)
    with pytest.raises(TiercelError, match="one CUDA device"):
        grouped_gemm(a, b, ends.cpu())
