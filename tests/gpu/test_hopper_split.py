"""K split over the CTAs of a cluster, and operands smaller than a tile, on the device."""

import pytest
import torch

from tests.gpu.test_hopper_gemm import exact, integers, poisoned
from tiercel.errors import TiercelValueError
from tiercel.targets.hopper import Tile, available, gemm

pytestmark = pytest.mark.gpu

SPLIT = {str(tile): tile for tile in (
    Tile(128, 64, 8, "cooperative", cluster_k=2), Tile(128, 128, 6, "cooperative", cluster_k=2),
)}  # fmt: skip
WHOLE = Tile(128, 128, 6, "cooperative")


@pytest.fixture(autouse=True, scope="module")
def _device():
    assert available(torch.cuda.current_device()) is None


@pytest.mark.parametrize("tile", SPLIT.values(), ids=SPLIT)
@pytest.mark.parametrize("a_transposed", [False, True])
@pytest.mark.parametrize("b_transposed", [False, True])
@pytest.mark.parametrize(("M", "N", "K"), [(1, 8, 72), (17, 257, 1000), (300, 712, 200)])
def test_halves_of_k(tile: Tile, a_transposed: bool, b_transposed: bool, M: int, N: int, K: int):
    a, b = (
        integers(M, K, torch.bfloat16, a_transposed),
        integers(K, N, torch.bfloat16, b_transposed),
    )
    whole = poisoned(M, N, torch.bfloat16)
    gemm(a, b, out=whole[:, :N], config=tile)
    assert torch.equal(whole[:, :N], exact(a, b, torch.bfloat16))
    assert whole[:, N:].isnan().all()


@pytest.mark.parametrize("k_tiles", [2, 3, 7, 16, 17, 40])
@pytest.mark.parametrize("tile", SPLIT.values(), ids=SPLIT)
def test_depths_around_the_ring(k_tiles: int, tile: Tile):
    a, b = (integers(200, 64 * k_tiles, torch.float16, False) for _ in range(2))
    first = gemm(a, b.t(), config=tile)
    assert torch.equal(first, exact(a, b.t(), torch.float16))
    assert all(torch.equal(first, gemm(a, b.t(), config=tile)) for _ in range(20))


@pytest.mark.parametrize("tile", SPLIT.values(), ids=SPLIT)
def test_addition_batches_and_more_tiles_than_multiprocessors(tile: Tile):
    a, b = integers(301, 256, torch.bfloat16, False), integers(256, 301, torch.bfloat16, False)
    c = integers(301, 301, torch.float32, False)
    out = poisoned(301, 301, torch.float32)[:, :301]
    gemm(a, b, out=out, alpha=0.5, beta=2.0, c=c, config=tile)
    assert torch.equal(out, exact(a, b, torch.float32, 0.5, 2.0, c))
    a = integers(300, 128, torch.bfloat16, False, batch=(3,))
    b = integers(128, 2000, torch.bfloat16, False, batch=(3,))
    assert torch.equal(gemm(a, b, config=tile), exact(a, b, torch.bfloat16))


@pytest.mark.parametrize("M", [1, 8, 9, 63, 64, 65, 127])
@pytest.mark.parametrize("tile", [WHOLE, *SPLIT.values()], ids=str)
def test_fewer_rows_than_a_tile(M: int, tile: Tile):
    a, b = integers(M, 640, torch.bfloat16, False), integers(328, 640, torch.bfloat16, False)
    out = poisoned(M, 328, torch.bfloat16)
    gemm(a, b.t(), out=out, config=tile)
    assert torch.equal(out, exact(a, b.t(), torch.bfloat16))
    narrow = poisoned(328, M, torch.bfloat16)[:, :M]
    gemm(b, a.t(), out=narrow, config=tile)
    assert torch.equal(narrow, exact(b, a.t(), torch.bfloat16))


def test_one_k_tile_cannot_be_split():
    a, b = integers(64, 64, torch.bfloat16, False), integers(64, 64, torch.bfloat16, False)
    with pytest.raises(TiercelValueError, match="1 k-tile"):
        gemm(a, b, config=next(iter(SPLIT.values())))
