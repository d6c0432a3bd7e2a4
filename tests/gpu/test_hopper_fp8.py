"""float8 products with scales on the device, judged by exact integers and by the vendor's error."""

import pytest
import torch

from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.targets.hopper import Tile, available, gemm, gemm_scaled
from tiercel.targets.hopper.products import heuristic

pytestmark = pytest.mark.gpu

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
TILES = {str(tile): tile for tile in (
    *heuristic.PROMOTED, Tile(256, 128, 3, "cooperative", cluster_n=2),
)}  # fmt: skip
SIZES = [(1, 1, 16), (129, 257, 144), (300, 712, 1000), (256, 512, 128), (513, 200, 2048)]


@pytest.fixture(autouse=True, scope="module")
def _device():
    assert available(torch.cuda.current_device()) is None


def integers(rows: int, columns: int, dtype: torch.dtype = E4M3) -> torch.Tensor:
    """Small integers, in rows of a multiple of 16 bytes."""
    values = torch.randint(-3, 4, (rows, -(-columns // 16) * 16), device="cuda").float().to(dtype)
    return values[:, :columns]


def scales(rows: int, columns: int) -> torch.Tensor:
    """Powers of two: products and sums stay exact."""
    return 2.0 ** torch.randint(-1, 2, (rows, columns), device="cuda").float()


def blocks(M: int, N: int, K: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Scales of 1×128 blocks of A and 128×128 blocks of B, in the vendor's layout."""
    depth = -(-K // 128)
    return scales(depth, M).t(), scales(-(-N // 128), depth).t()


def column_blocks(M: int, N: int, K: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Scales of 1×128 blocks of A and 128×1 blocks of B."""
    depth = -(-K // 128)
    return scales(depth, M).t(), scales(depth, N)


def product(a, b, scale_a, scale_b) -> torch.Tensor:
    """In float64, scales of rows, columns or blocks written out."""
    a, b = a.float().double(), b.float().double()
    (M, K), N = a.shape, b.shape[1]
    if scale_a.shape == (M, -(-K // 128)) and scale_a.numel() > 1 and K > 128:
        wide = scale_b.repeat_interleave(128, 0)[:K]
        wide = wide if wide.shape[1] == N else wide.repeat_interleave(128, 1)[:, :N]
        return (a * scale_a.repeat_interleave(128, 1)[:, :K]) @ (b * wide)
    return a @ b * scale_a * scale_b


def error(x: torch.Tensor, reference: torch.Tensor) -> float:
    return ((x.double() - reference).norm() / reference.norm()).item()


@pytest.mark.parametrize("tile", TILES.values(), ids=TILES)
@pytest.mark.parametrize(("M", "N", "K"), SIZES)
def test_blocks_are_exact_on_integers(tile: Tile, M: int, N: int, K: int):
    a, b = integers(M, K), integers(N, K).t()
    scale_a, scale_b = blocks(M, N, K)
    whole = torch.full((M, -(-N // 8) * 8), float("nan"), device="cuda", dtype=torch.bfloat16)
    gemm_scaled(a, b, scale_a, scale_b, out=whole[:, :N], config=tile)
    wanted = product(a, b, scale_a, scale_b) if K > 128 else (
        product(a, b, scale_a, scale_b.repeat_interleave(128, 1)[:, :N])
    )  # fmt: skip
    assert torch.equal(whole[:, :N], wanted.to(torch.bfloat16))
    assert whole[:, N:].isnan().all()


@pytest.mark.parametrize("tile", [*heuristic.PROMOTED_COLUMNS, heuristic.PROMOTED_WHOLE], ids=str)
@pytest.mark.parametrize(("M", "N", "K"), SIZES[1:])
def test_blocks_of_single_columns(tile: Tile, M: int, N: int, K: int):
    a, b = integers(M, K), integers(N, K).t()
    scale_a, scale_b = column_blocks(M, N, K)
    wanted = product(a, b, scale_a, scale_b).to(torch.bfloat16)
    for config in (tile, None):
        assert torch.equal(gemm_scaled(a, b, scale_a, scale_b, config=config), wanted)


@pytest.mark.parametrize("left", [E4M3, E5M2])
def test_two_kinds(left: torch.dtype):
    right = E5M2 if left == E4M3 else E4M3
    a, b = integers(300, 400, left), integers(264, 400, right).t()
    for scale_a, scale_b in (blocks(300, 264, 400), (scales(300, 1), scales(1, 264))):
        got = gemm_scaled(a, b, scale_a, scale_b)
        wanted = product(a, b, scale_a, scale_b)
        assert torch.equal(got, wanted.to(torch.bfloat16))
    assert torch.equal(gemm(a, b), (a.float() @ b.float()).to(torch.bfloat16))


def test_a_whole_second_accumulator():
    tile = heuristic.PROMOTED_WHOLE
    a, b = integers(300, 1000), integers(712, 1000).t()
    scale_a, scale_b = scales(300, 1), scales(1, 712)
    got = gemm_scaled(a, b, scale_a, scale_b, config=tile)
    assert torch.equal(got, product(a, b, scale_a, scale_b).to(torch.bfloat16))


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("kind", ["numbers", "vectors", "mixed"])
@pytest.mark.parametrize(("M", "N", "K"), SIZES[1:4])
def test_numbers_and_vectors(kind: str, fast: bool, M: int, N: int, K: int):
    a, b = integers(M, K), integers(N, K).t()
    scale_a = scales(1, 1)[0, 0] if kind == "numbers" else scales(M, 1)
    scale_b = scales(1, N) if kind == "vectors" else scales(1, 1)
    got = gemm_scaled(a, b, scale_a, scale_b, fast_accumulation=fast)
    assert torch.equal(got, product(a, b, scale_a, scale_b).to(torch.bfloat16))


@pytest.mark.parametrize("tile", [*heuristic.CANDIDATES, heuristic.VECTORS], ids=str)
def test_fast_accumulation_on_every_tile(tile: Tile):
    a, b = integers(300, 272), integers(712, 272).t()
    scale_a, scale_b = scales(300, 1), scales(1, 712)
    got = gemm_scaled(a, b, scale_a, scale_b, fast_accumulation=True, config=tile)
    assert torch.equal(got, product(a, b, scale_a, scale_b).to(torch.bfloat16))


@pytest.mark.parametrize("dtype", [E4M3, E5M2])
@pytest.mark.parametrize("output", [torch.bfloat16, torch.float16, torch.float32])
def test_every_pair_of_operand_and_output_types_is_exact(dtype: torch.dtype, output: torch.dtype):
    a, b = integers(200, 384, dtype), integers(272, 384, dtype).t()
    scale_a, scale_b = blocks(200, 272, 384)
    out = torch.full((200, 272), float("nan"), device="cuda", dtype=output)
    gemm_scaled(a, b, scale_a, scale_b, out=out)
    assert torch.equal(out, product(a, b, scale_a, scale_b).to(output))


def test_outputs_that_tma_cannot_address():
    a, b = integers(130, 256), integers(201, 256).t()
    for scale_a, scale_b in (blocks(130, 201, 256), (scales(130, 1), scales(1, 201))):
        got = gemm_scaled(a, b, scale_a, scale_b)
        assert torch.equal(got, product(a, b, scale_a, scale_b).to(torch.bfloat16))


def test_scales_in_any_layout():
    a, b = integers(300, 512), integers(384, 512).t()
    scale_a, scale_b = blocks(300, 384, 512)
    spread_a = torch.full((300, 9), float("nan"), device="cuda")[:, 1::2]
    spread_a.copy_(scale_a)
    one = gemm_scaled(a, b, scale_a, scale_b)
    assert torch.equal(one, gemm_scaled(a, b, spread_a, scale_b.contiguous()))


@pytest.mark.parametrize("K", [4096, 16384])
def test_errors_are_the_vendors(K: int):
    x, y = torch.randn(512, K, device="cuda"), torch.randn(768, K, device="cuda")
    a, b = x.to(E4M3), y.to(E4M3).t()
    depth = K // 128
    cases = {
        "number": (torch.rand((), device="cuda"), torch.rand((), device="cuda")),
        "vectors": (torch.rand(512, 1, device="cuda"), torch.rand(1, 768, device="cuda")),
        "blocks": (
            torch.rand(depth, 512, device="cuda").t(), torch.rand(6, depth, device="cuda").t()
        ),
    }  # fmt: skip
    for name, (scale_a, scale_b) in cases.items():
        reference = product(a, b, scale_a, scale_b)
        for fast in (False, True)[: 1 if name == "blocks" else 2]:
            vendor = torch._scaled_mm(
                a, b, scale_a, scale_b, out_dtype=torch.bfloat16, use_fast_accum=fast
            )
            ours = gemm_scaled(a, b, scale_a, scale_b, fast_accumulation=fast)
            got, theirs = error(ours, reference), error(vendor, reference)
            print(f"{name} K={K} {fast=}: {got:.3e}, vendor {theirs:.3e}")
            assert got <= 1.05 * theirs, (name, fast)


def test_promotion_keeps_what_fast_accumulation_loses():
    """Positive operands: partial sums grow, and 14 bits round them again and again."""
    a = torch.rand(256, 8192, device="cuda").to(E4M3)
    b = torch.rand(256, 8192, device="cuda").to(E4M3).t()
    one = torch.ones((), device="cuda")
    reference = product(a, b, one, one)
    out = torch.empty(256, 256, device="cuda")
    fast = error(gemm_scaled(a, b, one, one, out=out, fast_accumulation=True), reference)
    promoted = error(gemm_scaled(a, b, one, one, out=out), reference)
    print(f"{fast=:.2e} {promoted=:.2e}")
    assert 10 * promoted < fast


def test_refusals_name_the_argument():
    a, b = integers(256, 256), integers(256, 256).t()
    scale_a, scale_b = blocks(256, 256, 256)
    with pytest.raises(TiercelTypeError, match=r"scale_a is .*float64"):
        gemm_scaled(a, b, scale_a.double(), scale_b)
    with pytest.raises(TiercelValueError, match="scale_b is"):
        gemm_scaled(a, b, scale_a, scale_b[:1])
    with pytest.raises(TiercelTypeError, match="scale_b is on cpu"):
        gemm_scaled(a, b, scale_a, scale_b.cpu())
    with pytest.raises(TiercelTypeError, match="bfloat16"):
        gemm_scaled(a.to(torch.bfloat16), b.to(torch.bfloat16), scale_a, scale_b)
    with pytest.raises(TiercelValueError, match="cannot add up"):
        gemm_scaled(a, b, scale_a, scale_b, config=heuristic.CANDIDATES[1])
