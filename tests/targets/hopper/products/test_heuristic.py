"""The choice of tile and split, on paper."""

from typing import Any

import pytest

from tiercel.errors import TiercelValueError
from tiercel.targets.hopper import Tile, available
from tiercel.targets.hopper.config import Config
from tiercel.targets.hopper.products import heuristic, split

SMS = 132


@pytest.mark.parametrize("K", [64, 512, 4096, 16384])
@pytest.mark.parametrize("M", [1, 64, 1000, 8192])
def test_parts_are_whole_and_addressable(M: int, K: int):
    for N in (4, 512, 4096):
        choice = heuristic.choose(M, N, K, 1, SMS)
        assert choice.parts == 1 or split.divides(K, choice.parts)


def test_only_what_may_be_split_is():
    assert heuristic.choose(16, 512, 8192, 1, SMS).parts > 1
    assert heuristic.choose(16, 512, 8192, 1, SMS, splits=False).parts == 1
    assert heuristic.choose(16, 511, 8192, 1, SMS).parts == 1
    assert heuristic.choose(16, 512, 8192, 4, SMS).parts == 1


def test_k_is_split_in_a_cluster_where_half_the_multiprocessors_would_idle():
    for M in (1, 64, 128):
        assert heuristic.choose(M, 4096, 4096, 1, SMS).tile.cluster_k == 2
        assert heuristic.choose(M, 4096, 4096, 1, SMS, splits=False).tile.cluster_k == 1
    assert heuristic.choose(8192, 8192, 8192, 1, SMS).tile.cluster_k == 1
    assert heuristic.choose(64, 4096, 256, 1, SMS).tile.cluster_k == 1


def test_large_products_take_the_tiles_with_the_least_traffic():
    first = heuristic.CANDIDATES[0]
    for M, N, K in ((4096, 4096, 4096), (8192, 8192, 8192), (8192, 28672, 4096)):
        assert heuristic.choose(M, N, K, 1, SMS, large=False).tile == first
        assert heuristic.choose_promoted(M, N, 2 * K, SMS, "blocks") == first
    for scaling in ("none", "vectors", "column blocks"):
        assert heuristic.choose_promoted(8192, 8192, 8192, SMS, scaling).n == 192
    assert heuristic.choose_promoted(4096, 4096, 4096, SMS) == first  # 21.3 columns of tiles
    # 8192 columns are 42.7 tiles of 192: an eleventh turn for a few of them.
    assert heuristic.choose(8192, 8192, 8192, 1, SMS).tile == first
    assert heuristic.choose(8192, 8192, 16384, 1, SMS, item=4).tile == heuristic.LARGE
    assert heuristic.choose(16384, 16384, 16384, 1, SMS).tile == heuristic.LARGE


def test_columns_that_fill_one_wave():
    tile = heuristic.choose(256, 14336, 4096, 1, SMS, k_major=True).tile
    assert -(-256 // tile.m) * -(-14336 // tile.n) == 128
    assert heuristic.choose(256, 14336, 4096, 1, SMS).tile.n % 64 == 0
    # 64 rows by 224 columns only where memory is the limit: it took 1.7 times what cuBLAS does.
    assert heuristic.choose(128, 14336, 4096, 1, SMS, k_major=True).tile.m == 64
    for M in (2560, 7168):
        assert heuristic.choose(M, 576, 7168, 1, SMS, k_major=True).tile.m > 64


@pytest.mark.parametrize("changes", [{"b_mn_major": True}, {"grouped": True}])
def test_columns_that_are_no_multiple_of_64_need_b_along_k(changes: dict[str, Any]):
    layouts: dict[str, Any] = {"a_mn_major": False, "b_mn_major": False}
    with pytest.raises(TiercelValueError, match="a multiple of 64 is needed"):
        Config(heuristic.K_MAJOR[0], "bfloat16", "bfloat16", **(layouts | changes))


def test_estimate_grows_with_the_product():
    tile = heuristic.CANDIDATES[0]
    sizes = [1024, 2048, 4096, 8192, 16384]
    cycles = [heuristic.estimate(tile, 1, n, n, n, 1, SMS).cycles for n in sizes]
    assert cycles == sorted(cycles)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((100, 256, 4, "cooperative"), "m is a multiple of 64"),
        ((64, 256, 4, "cooperative"), "each consumer needs 64 rows"),
        ((256, 256, 2, "cooperative"), "accumulator registers"),
        ((128, 256, 6, "cooperative"), "shared memory"),
        ((128, 256, 4, "cooperative", 2, 2), "at most 2 CTAs"),
    ],
)
def test_impossible_tiles_are_refused(arguments: tuple, reason: str):
    with pytest.raises(TiercelValueError, match=reason):
        Tile(*arguments)


def test_absence_is_explained():
    reason = available()
    assert reason is None or len(reason.splitlines()) == 1


@pytest.mark.parametrize("rows", [1, 64, 256, 2048])
def test_groups_take_wide_tiles_where_they_fill_the_gpu(rows: int):
    many = heuristic.choose_grouped(64, 64 * rows, 4096, 4096, 132)
    assert many == heuristic.CANDIDATES[0]
    assert heuristic.choose_grouped(2, 2 * min(rows, 256), 1024, 4096, 132) == heuristic.PINGPONG
