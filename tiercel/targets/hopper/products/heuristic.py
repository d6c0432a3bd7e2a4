"""Which tile, schedule and split of K: candidates → estimated time of each → the least."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from tiercel.targets.hopper.config import Scaling, Tile
from tiercel.targets.hopper.products import stream_k
from tiercel.targets.hopper.products.split import divides

PINGPONG = Tile(128, 128, 6, "pingpong", cluster_m=2)  # hides its epilogue: short K, heavy ones
CANDIDATES = (
    Tile(128, 256, 4, "cooperative", cluster_m=2),  # least operand traffic: large products
    PINGPONG,
    Tile(128, 192, 4, "cooperative", cluster_m=2),  # where 256 columns leave a poor last wave
    Tile(64, 256, 4, "pingpong", cluster_m=2),
    Tile(128, 64, 8, "pingpong"),  # more tiles, for small M·N
    Tile(64, 128, 8, "pingpong"),  # M up to 64
    Tile(64, 64, 8, "pingpong"),
)
# Only where nothing but D = alpha · A·B is asked for: products of one wave, or less.
PLAIN = (
    Tile(128, 64, 8, "cooperative", cluster_k=2),  # 4096 columns: 64 tiles for 128 multiprocessors
    Tile(128, 128, 6, "cooperative", cluster_k=2),
    Tile(128, 128, 6, "cooperative"),
    Tile(128, 128, 6, "cooperative", cluster_m=2),
)
# Only where B is contiguous along K: columns that are no multiple of 64. 14336 are 64 tiles.
K_MAJOR = (
    Tile(128, 224, 4, "cooperative", cluster_m=2),
    Tile(64, 224, 5, "pingpong", cluster_m=2),
)
# A sixth fewer bytes from L2 for each product than the first candidate, so that less of the power
# goes into moving data; its accumulators leave no registers for the loads of C.
LARGE = Tile(256, 192, 3, "cooperative", cluster_n=2)
# For float8 sums that are added up in float32: a consumer adds while the other one multiplies. They
# leave room for scales; those of blocks of K for each column take most.
PROMOTED = (
    Tile(128, 256, 4, "cooperative", cluster_m=2),
    Tile(128, 128, 5, "cooperative", cluster_m=2),
    Tile(128, 64, 7, "cooperative"),
)
PROMOTED_COLUMNS = (replace(PROMOTED[0], stages=3), *PROMOTED[1:])
# Where a scale is not that of 128 columns: a whole second accumulator, filled while the other
# consumer adds, so that the tensor cores wait less than with two halves; its rate, interleaved at
# 8192³ 1.06 with one number and with scales of blocks for each column.
PROMOTED_WHOLE, WHOLE_RATE = Tile(128, 192, 4, "cooperative", cluster_m=2), 1.02
# For groups of rows that have a B each: no other tile was ahead of both by more than 4 %.
GROUPED = CANDIDATES[:2]
# With scales of rows and columns, which PingPong hides: 1.03 instead of 0.98 at 8192³ with 128x256.
VECTORS = Tile(128, 192, 4, "pingpong", cluster_m=2)
PARTS = (1, 2, 3, 4, 6, 8, 12, 16)

GROUP = 8  # rows of cluster tiles walked together, see kernels/scheduler.cuh

# Cycles, and bytes per cycle, at 1.75 GHz, fitted to 163 measured times of the 15 small products in
# docs/hopper-operands.md on an H200: the mean deviation is 7 %, and the tile chosen is the fastest
# but for 0.2 % in the mean, 2 % at most.
MACS = 2_048  # 16-bit multiply-adds of one multiprocessor's tensor cores
LOAD = 58  # bytes from L2 into one multiprocessor's shared memory
LATENCY = 2_400  # of a load under load: a stage can be refilled as often as this
DRAM = 2_080  # bytes of the whole device
START = 3_200  # launch, descriptors, first k-tile
TILE_START = 890  # of a tile's mainloop
STORE = 0.15  # per element of a tile
HIDDEN = 0.05  # of the shorter of work and memory's time that shows all the same
GATHER = 430  # of the two parts of K in a cluster
SUM_START = 3_000  # the second kernel of a split: between this fit (1,070) and the last (6,300)
SUM = 1_380  # bytes of its parts, written and read
# Rate of the mainloop against the first candidate's. Set, not measured one by one: low enough that
# large products take the first candidate or LARGE. Sustained over five of them, 128x128 reached
# 0.95 to 1.06 of it and 64x256 0.90 to 0.97; of the small tiles nothing is known there. 64x224 is
# for products that memory limits: at 7168x576x7168, in one turn, it took 148 µs, cuBLAS 85.
RATE = {(128, 128): 0.92, (128, 192): 0.98, (128, 224): 0.975, (64, 224): 0.79, (64, 256): 0.93,
        (64, 128): 0.9, (128, 64): 0.9, (64, 64): 0.85}  # fmt: skip
# The rate of LARGE by bytes of an element, between what is measured interleaved (0.99, float8 1.02,
# TF32 1.05) and sustained (1.05, 1.05 and 1.06), at 8192³ and 16384³ and waves of the same length.
LARGE_RATE = {1: 1.04, 2: 1.02, 4: 1.04}


@dataclass(frozen=True)
class Choice:
    """A tile and a number of parts of K, with the predicted cycles."""

    tile: Tile
    parts: int
    cycles: float


def estimate(
    tile: Tile, parts: int, M: int, N: int, K: int, batches: int, sms: int,
    rate: float | None = None, shares: bool = False, in_turn: bool = False, whole: bool = True,
) -> Choice:  # fmt: skip
    """Time of the busiest CTA, or of the device's memory if that is longer.

    ``K`` counts 16-bit elements. ``rate``: of the mainloop, instead of the tile's in ``RATE``.
    ``shares``: the last turn may be shared, see ``stream_k.py``. ``in_turn``: consumers of a
    cooperative tile end it one after the other, so that its store does not show. ``whole``: there
    are as many rows of tiles as fill clusters.
    """
    height = tile.cluster_m if whole else 1
    rows = -(-M // (tile.m * height)) * height
    columns = -(-N // (tile.n * tile.cluster_n)) * tile.cluster_n
    ctas = rows * columns * batches * parts * tile.cluster_k
    waves = -(-ctas // (sms // tile.cluster * tile.cluster))
    multiply = tile.m * tile.n * 64 / MACS / (rate or RATE.get((tile.m, tile.n), 1.0))
    a_rows = min(tile.m, -(-M // 8) * 8) if tile.cluster_n == 1 else tile.m  # that are loaded
    load = (a_rows / tile.cluster_n + tile.n / tile.cluster_m) * 128 / LOAD
    k_tiles = -(-K // (64 * parts * tile.cluster_k))
    k_tile = max(multiply, load, LATENCY / tile.stages)
    store = tile.m * tile.n * STORE
    hidden = tile.schedule == "pingpong" or in_turn  # all but the last one
    shown = store if hidden else waves * store
    cycles = waves * (k_tiles * k_tile + TILE_START) + shown
    if shares and parts == 1 and stream_k.possible(tile):
        division = stream_k.shares(ctas // tile.cluster, sms // tile.cluster, k_tiles)
        cycles -= division.saved * k_tile if division else 0.0
    memory = 2 * batches * (M * K + K * N + M * N) / DRAM
    cycles = max(cycles, memory) + HIDDEN * min(cycles, memory)
    if tile.cluster_k > 1:
        cycles += GATHER
    if parts > 1:
        cycles += SUM_START + M * N * (8 * parts + 2) / SUM
    return Choice(tile, parts, START + cycles)


@lru_cache(maxsize=4096)
def choose(
    M: int, N: int, K: int, batches: int, sms: int, splits: bool = True,
    k_major: bool = False, large: bool = True, item: int = 2, shares: bool = False,
) -> Choice:  # fmt: skip
    """The candidate with the least estimated time.

    ``splits``: of a plain product: parts of K are allowed, and the tiles of ``PLAIN``.
    ``k_major``: B is contiguous along K. ``large``: C is not added. ``shares``: see ``estimate``.
    ``K`` counts 16-bit elements; of other types, whose elements have ``item`` bytes, as many bytes
    take as long.

    >>> print(choose(8192, 8192, 8192, 1, 132).tile)
    cooperative 128x256, 4 stages, cluster 2x1
    >>> print(choose(16384, 16384, 16384, 1, 132).tile)
    cooperative 256x192, 3 stages, cluster 1x2
    >>> print(choose(64, 4096, 8192, 1, 132).tile)
    cooperative 128x64, 8 stages, cluster 1x1x2
    """
    may_split = splits and batches == 1 and N % 4 == 0  # the float32 parts need 16-byte rows
    made = [
        estimate(
            tile, parts, M, N, K, batches, sms, LARGE_RATE[item] if tile == LARGE else None, shares
        )
        for tile in CANDIDATES
        + (PLAIN if splits else ())
        + (K_MAJOR if k_major else ())
        + ((LARGE,) if large else ())
        if _possible(tile, M, N, K, batches, sms)
        for parts in (PARTS if may_split and tile.cluster_k == 1 else (1,))
        if parts == 1 or (divides(K, parts) and K // parts >= 256)  # shorter: latency only
    ]
    return min(made, key=lambda choice: choice.cycles)


def _possible(tile: Tile, M: int, N: int, K: int, batches: int, sms: int) -> bool:
    if tile.cluster_k == 1:
        return True
    # One wave, and parts that are worth it.
    clusters = -(-M // tile.m) * -(-N // tile.n) * batches
    return clusters * tile.cluster <= sms and K // tile.cluster_k >= 256


@lru_cache(maxsize=4096)
def choose_grouped(groups: int, M: int, N: int, K: int, sms: int) -> Tile:
    """The tile for ``groups`` groups of rows, ``M`` in all, that have a B each.

    How many rows a group has is known on the device only: as if all had the same. ``K`` counts
    16-bit elements.

    >>> print(choose_grouped(64, 16384, 2048, 4096, 132))
    cooperative 128x256, 4 stages, cluster 2x1
    >>> print(choose_grouped(8, 1024, 1024, 2048, 132))
    pingpong 128x128, 6 stages, cluster 2x1
    """
    made = [
        estimate(tile, 1, -(-M // groups), N, K, groups, sms, in_turn=True, whole=False)
        for tile in GROUPED
    ]
    return min(made, key=lambda choice: choice.cycles).tile


@lru_cache(maxsize=4096)
def choose_fast(M: int, N: int, K: int, sms: int, scaling: Scaling = "none") -> Tile:
    """The tile of a float8 product with scales that the tensor cores add up; K as they count it.

    >>> print(choose_fast(8192, 8192, 8192, 132, "vectors"))
    pingpong 128x192, 4 stages, cluster 2x1
    """
    found = choose(M, N, K // 2, 1, sms, splits=False, k_major=True, item=1, shares=True)
    if scaling == "vectors":
        others = [estimate(VECTORS, 1, M, N, K // 2, 1, sms)]
    else:  # 128x256 had 1.027 at 4096³, in another run 128x128 0.999
        others = [
            estimate(tile, 1, M, N, K // 2, 1, sms, rate, shares=True, in_turn=True)
            for tile, rate in ((CANDIDATES[0], 1.0), (LARGE, LARGE_RATE[1]))
        ]
    return min(found, *others, key=lambda choice: choice.cycles).tile


@lru_cache(maxsize=4096)
def choose_promoted(M: int, N: int, K: int, sms: int, scaling: Scaling = "none") -> Tile:
    """The tile of a float8 product that is added up in float32; K counts float8 elements.

    >>> print(choose_promoted(4096, 4096, 4096, 132))
    cooperative 128x256, 4 stages, cluster 2x1
    """
    tiles = PROMOTED_COLUMNS if scaling == "column blocks" else PROMOTED
    shares = "blocks" not in scaling
    made = [estimate(tile, 1, M, N, K // 2, 1, sms, shares=shares) for tile in tiles]
    if scaling != "blocks":
        made.append(estimate(PROMOTED_WHOLE, 1, M, N, K // 2, 1, sms, WHOLE_RATE, shares))
    return min(made, key=lambda choice: choice.cycles).tile
