"""TF32 products of operands in every layout, judged by exact integers and by the vendor's error."""

import pytest
import torch

from tiercel.targets.hopper import Tile, available, gemm
from tiercel.targets.hopper.products import heuristic

pytestmark = pytest.mark.gpu

TILES = {str(tile): tile for tile in (
    Tile(128, 256, 4, "cooperative", cluster_m=2), Tile(128, 192, 4, "cooperative", cluster_n=2),
    heuristic.LARGE, Tile(64, 256, 4, "pingpong", cluster_m=2), Tile(64, 64, 8, "pingpong"),
    Tile(128, 64, 8, "cooperative", cluster_k=2),
)}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def _device():
    assert available(torch.cuda.current_device()) is None


def integers(rows: int, columns: int, transposed: bool, batch=()) -> torch.Tensor:
    if transposed:
        return integers(columns, rows, False, batch).transpose(-1, -2)
    padded = -(-columns // 4) * 4
    return torch.randint(-3, 4, (*batch, rows, padded), device="cuda").float()[..., :columns]


def exact(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a.double() @ b.double()).float()


@pytest.mark.parametrize("tile", TILES.values(), ids=TILES)
@pytest.mark.parametrize("a_transposed", [False, True])
@pytest.mark.parametrize("b_transposed", [False, True])
@pytest.mark.parametrize(("M", "N", "K"), [(300, 712, 200), (131, 260, 33), (1000, 520, 992)])
def test_every_layout_is_exact(
    tile: Tile, a_transposed: bool, b_transposed: bool, M: int, N: int, K: int
):
    a, b = integers(M, K, a_transposed), integers(K, N, b_transposed)
    whole = torch.full((M, N + 8), float("nan"), device="cuda")
    gemm(a, b, out=whole[:, :N], tf32=True, config=tile)
    assert torch.equal(whole[:, :N], exact(a, b))
    assert whole[:, N:].isnan().all()


@pytest.mark.parametrize("k_tiles", range(1, 11))
@pytest.mark.parametrize("a_transposed", [False, True])
def test_depths_around_the_ring(k_tiles: int, a_transposed: bool):
    a, b = integers(700, 32 * k_tiles, a_transposed), integers(32 * k_tiles, 704, not a_transposed)
    for tile in list(TILES.values())[:4]:
        assert torch.equal(gemm(a, b, tf32=True, config=tile), exact(a, b))


@pytest.mark.parametrize("tile", list(TILES.values())[:3], ids=list(TILES)[:3])
@pytest.mark.parametrize("transposed", [False, True])
def test_several_turns(tile: Tile, transposed: bool):
    """Consumers of a cooperative tile end all but the last one after the other."""
    a, b = integers(4096, 300, transposed), integers(300, 5120, transposed)
    for _ in range(3):
        assert torch.equal(gemm(a, b, tf32=True, config=tile), exact(a, b))


@pytest.mark.parametrize("a_transposed", [False, True])
@pytest.mark.parametrize("b_transposed", [False, True])
def test_other_outputs(a_transposed: bool, b_transposed: bool):
    a, b = integers(300, 200, a_transposed), integers(200, 260, b_transposed)
    wanted = exact(a, b)
    half = torch.empty(300, 260, device="cuda", dtype=torch.bfloat16)
    assert torch.equal(gemm(a, b, out=half, tf32=True), wanted.bfloat16())
    columns = torch.empty(260, 300, device="cuda").t()
    assert torch.equal(gemm(a, b, out=columns, tf32=True), wanted)
    odd = torch.empty(300 * 259, device="cuda").view(300, 259)
    assert torch.equal(gemm(a, b[:, :259], out=odd, tf32=True), wanted[:, :259])
    c = integers(300, 260, False)
    added = gemm(a, b, alpha=0.5, beta=2.0, c=c, tf32=True)
    assert torch.equal(added, 0.5 * wanted + 2 * c)


@pytest.mark.parametrize("a_transposed", [False, True])
@pytest.mark.parametrize("b_transposed", [False, True])
def test_batches_and_split_products(a_transposed: bool, b_transposed: bool):
    a = integers(200, 128, a_transposed, (3,))
    b = integers(128, 264, b_transposed, (3,))
    assert torch.equal(gemm(a, b, tf32=True), exact(a, b))
    assert heuristic.choose(64, 512, 8192, 1, 132).parts > 1
    a, b = integers(64, 4096, a_transposed), integers(4096, 512, b_transposed)
    assert torch.equal(gemm(a, b, tf32=True), exact(a, b))


@pytest.mark.parametrize("a_transposed", [False, True])
@pytest.mark.parametrize("b_transposed", [False, True])
def test_error_is_the_vendors(a_transposed: bool, b_transposed: bool):
    x, y = torch.randn(512, 2048, device="cuda"), torch.randn(2048, 768, device="cuda")
    a = x.t().contiguous().t() if a_transposed else x
    b = y.t().contiguous().t() if b_transposed else y
    reference = a.double() @ b.double()

    def error(got: torch.Tensor) -> float:
        return ((got - reference).norm() / reference.norm()).item()

    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    vendor = a @ b
    torch.backends.cuda.matmul.allow_tf32 = before
    assert error(gemm(a, b, tf32=True)) <= 1.05 * error(vendor)
