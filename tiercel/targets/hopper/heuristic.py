"""Which tile, schedule and split of K: candidates → estimated time of each → the least."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tiercel.targets.hopper.config import ITEM_BYTES, Tile
from tiercel.targets.hopper.split import divides

CANDIDATES = (
    Tile(128, 256, 4, "cooperative", cluster_m=2),  # least operand traffic: large products
    Tile(128, 128, 6, "pingpong", cluster_m=2),  # hides its epilogue: short K, heavy epilogues
    Tile(128, 192, 4, "cooperative", cluster_m=2),  # where 256 columns leave a poor last wave
    Tile(64, 256, 4, "pingpong", cluster_m=2),
    Tile(128, 64, 8, "pingpong"),  # more tiles, for small M·N
    Tile(64, 128, 8, "pingpong"),  # M up to 64
    Tile(64, 64, 8, "pingpong"),
)
PARTS = (1, 2, 3, 4, 6, 8, 12, 16)

GROUP = 8  # rows of cluster tiles walked together, see kernels/scheduler.cuh

# Cycles, and bytes per cycle, at about 1.75 GHz, fitted to 246 measured times of small products on
# an H200: in 14 of 15 shapes the fastest candidate is chosen, in the other one 3.5 % slower.
MACS = 2_048  # 16-bit multiply-adds of one multiprocessor's tensor cores
LOAD = 56  # bytes from L2 into one multiprocessor's shared memory
OUTSIDE = 1.85  # loading a tile that reaches beyond M takes longer by this
LATENCY = 3_000  # of a load under load: a stage can be refilled as often as this
DRAM = 2_450  # bytes of the whole device
START = 2_000  # launch, descriptors, first k-tile
TILE_START = 420  # of a tile's mainloop
STORE = 0.128  # per element of a tile
SUM_START = 6_300  # the second kernel of a split
SUM = 2_890  # bytes of its parts, written and read
# Rate of the mainloop against the first candidate's. Set, not measured one by one: low enough that
# large products take the first candidate. Sustained over five of them, 128x128 reached 0.95 to 1.06
# of it and 64x256 0.90 to 0.97; of the small tiles nothing is known there.
RATE = {(128, 128): 0.92, (128, 192): 0.98, (64, 256): 0.93, (64, 128): 0.9, (128, 64): 0.9,
        (64, 64): 0.85}  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """A tile and a number of parts of K, with the predicted cycles."""

    tile: Tile
    parts: int
    cycles: float


def estimate(tile: Tile, parts: int, M: int, N: int, K: int, batches: int, sms: int) -> Choice:
    """Time of the busiest CTA, or of the device's memory if that is longer."""
    rows = -(-M // (tile.m * tile.cluster_m)) * tile.cluster_m
    columns = -(-N // (tile.n * tile.cluster_n)) * tile.cluster_n
    waves = -(-rows * columns * batches * parts // (sms // tile.cluster * tile.cluster))
    multiply = tile.m * tile.n * 64 / MACS / RATE.get((tile.m, tile.n), 1.0)
    load = (tile.m / tile.cluster_n + tile.n / tile.cluster_m) * 128 / LOAD
    if tile.m > M:
        load *= OUTSIDE
    mainloop = -(-K // (64 * parts)) * max(multiply, load, LATENCY / tile.stages) + TILE_START
    store = tile.m * tile.n * STORE
    shown = store if tile.schedule == "pingpong" else waves * store  # only the last one shows
    cycles = waves * mainloop + shown
    item = ITEM_BYTES["bfloat16"]
    cycles = max(cycles, item * batches * (M * K + K * N + M * N) / DRAM)
    if parts > 1:
        cycles += SUM_START + M * N * (8 * parts + item) / SUM
    return Choice(tile, parts, START + cycles)


@lru_cache(maxsize=4096)
def choose(M: int, N: int, K: int, batches: int, sms: int, splits: bool = True) -> Choice:
    """The candidate with the least estimated time. ``splits``: parts of K are allowed.

    ``K`` counts 16-bit elements; of other types as many bytes take as long.

    >>> print(choose(8192, 8192, 8192, 1, 132).tile)
    cooperative 128x256, 4 stages, cluster 2x1
    >>> choose(64, 4096, 8192, 1, 132).parts > 1
    True
    """
    may_split = splits and batches == 1 and N % 4 == 0  # the float32 parts need 16-byte rows
    made = [
        estimate(tile, parts, M, N, K, batches, sms)
        for tile in CANDIDATES
        for parts in (PARTS if may_split else (1,))
        if parts == 1 or (divides(K, parts) and K // parts >= 256)  # shorter: latency only
    ]
    return min(made, key=lambda choice: choice.cycles)
