"""When the planes of a fused product are combined: before it, or meanwhile, and by whom."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from tiercel.targets.hopper.fused import Fused

Where = Literal["before", "beside", "first"]
WARPS = 12  # of a thread block, all of which combine in a first turn
IDLE_WARPS = 3  # beside a producer thread
K_TILE = 0.7e-6  # seconds of a k-tile at the clock that power allows
MOST_AHEAD = 2  # heads: each needs memory for the sums that it saves
CLUSTER_RATE = 150e9  # bytes read and written each second by a cluster that only combines


@dataclass(frozen=True)
class Combining:
    """``where``: "before", by a kernel of their own; "beside", by the idle warps of all thread
    blocks; "first", by the first ``clusters``, which take no tile in their first turn. ``split``:
    tiles of a thread block whose heads, which read no planes, run ahead of everything else.
    ``early``: products whose planes are combined before also where the others are not, so that
    there is time for those.
    """

    where: Where = "before"
    clusters: int = 0
    split: int = 0
    early: int = 0

    def workers(self, blocks: int, cluster: int) -> int:
        """Warps that combine in a grid of ``blocks`` thread blocks."""
        if self.where == "beside":
            return IDLE_WARPS * blocks
        return WARPS * self.clusters * cluster if self.where == "first" else 0


@dataclass(frozen=True)
class Amount:
    """What there is to do.

    Cluster tiles, clusters of the GPU, k-tiles of all products of a tile, and bytes that combining
    reads and writes.
    """

    tiles: int
    clusters: int
    k_tiles: int
    combined: float


def choose(amount: Amount, lowered: Fused) -> Combining:
    """In the first turn of clusters that would have no tile in the last one, if that suffices.

    As many heads run ahead as take the time of it: without, 1.150 times the vendor at 8192³ where
    two make 1.208 (interleaved, Winograd's scheme).
    """
    free = spare(amount)
    if not (lowered.head_products and free):
        return Combining()
    needed = amount.combined / (free * CLUSTER_RATE)
    products = len(lowered.products)
    if needed > amount.k_tiles * K_TILE:
        return Combining()
    head = amount.k_tiles * K_TILE * lowered.head_products / products
    turns = amount.tiles // amount.clusters
    return Combining("first", free, min(math.ceil(needed / head), turns, MOST_AHEAD))


def spare(amount: Amount) -> int:
    """Clusters that have no tile in the last turn.

    >>> spare(Amount(tiles=256, clusters=66, k_tiles=448, combined=0))
    8
    """
    return -amount.tiles % amount.clusters
