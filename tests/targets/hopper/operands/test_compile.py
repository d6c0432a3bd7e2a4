"""A through registers, and K split over a cluster: what these kernels compile to."""

import re

import pytest

from tests.targets.hopper.products.test_compile import assembly, count
from tiercel.errors import TiercelValueError
from tiercel.targets.hopper.config import Config, Tile
from tiercel.targets.hopper.operands import turned
from tiercel.targets.hopper.products import classical, heuristic

COOPERATIVE = Tile(128, 256, 4, "cooperative", cluster_m=2)
PINGPONG = Tile(64, 256, 4, "pingpong", cluster_m=2)


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("tile", [COOPERATIVE, PINGPONG, heuristic.LARGE], ids=str)
def test_fragments_of_float32(tile: Tile, swapped: bool):
    chosen = Config(tile, "float32", "float32", True, False, fragments=True, swapped=swapped)
    sass = assembly(classical.text(chosen))
    # One wait for the instructions of each step, and one at the end, else the compiler has put one
    # behind every instruction ("serialized"). Two loops where consumers end a tile in turn.
    loops = 2 if tile.schedule == "cooperative" else 1
    assert count("HGMMA", sass) == 4 * tile.blocks * loops
    assert len(re.findall(r"WARPGROUP\.DEPBAR", sass)) == 5 * loops
    assert count("LDS", sass) >= 16 * tile.blocks
    for part in (part for part in re.split(r"\bBRA\b", sass) if "HGMMA" in part):
        assert count("LDL", part) == count("STL", part) == 0
    assert count("UTMASTG", sass) > 0


@pytest.mark.parametrize("n", [64, 128])
def test_parts_of_k_meet_without_a_fence(n: int):
    tile = Tile(128, n, 6, "cooperative", cluster_k=2)
    sass = assembly(classical.text(Config(tile, "bfloat16", "bfloat16", False, False)))
    assert count("HGMMA", sass) == 4
    assert "MEMBAR.ALL.GPU" not in sass
    assert count("UCGABAR_WAIT", sass) == 1
    assert count("LDL", sass) == count("STL", sass) == 0


def test_the_barrier_of_an_inbox_has_memory():
    alone, together = (Tile(128, 64, 6, "cooperative", cluster_k=k) for k in (1, 2))
    assert together.shared_bytes == alone.shared_bytes + 8


def test_only_small_tiles_split_k():
    with pytest.raises(TiercelValueError, match="cannot split K"):
        Tile(128, 256, 4, "cooperative", cluster_k=2)
    with pytest.raises(TiercelValueError, match="cannot split K"):
        Tile(128, 128, 6, "pingpong", cluster_k=2)
    with pytest.raises(TiercelValueError, match="1x2x2 is too large"):
        Tile(128, 64, 6, "cooperative", cluster_n=2, cluster_k=2)


def test_fragments_of_two_blocks_leave_no_registers_for_sums_of_others():
    with pytest.raises(TiercelValueError, match="2 blocks of 64 rows"):
        Config(heuristic.LARGE, "float32", "float32", True, False, fragments=True, stream_k=True)


def test_fragments_are_for_operands_along_m():
    with pytest.raises(TiercelValueError, match="contiguous along M"):
        Config(PINGPONG, "float32", "float32", False, False, fragments=True)


@pytest.mark.parametrize("tile", heuristic.PLAIN, ids=str)
def test_tiles_of_small_products(tile: Tile):
    sass = assembly(classical.text(Config(tile, "bfloat16", "bfloat16", False, True)))
    # k-tiles for both consumers at once, and the last ones, in turn: not where K is split.
    turns = tile.schedule == "cooperative" and tile.cluster_k == 1
    assert count("HGMMA", sass) == 4 * tile.blocks * (1 + turns)
    assert count("UTMALDG", sass) >= 2
    loop = re.search(r"HGMMA.*HGMMA[^\n]*\n", sass, re.DOTALL)
    assert loop is not None
    assert count("LDL", loop[0]) == count("STL", loop[0]) == 0


def test_copies_in_the_other_order():
    sass = assembly(turned.TEXT)
    each = turned.SIDE**2 // turned.THREADS
    assert [count(x, sass) for x in ("LDG", "STS", "LDS", "STG")] == [each] * 4
    assert count("LDL", sass) == 0
