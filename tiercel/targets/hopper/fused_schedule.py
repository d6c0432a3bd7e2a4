"""When the planes of a fused product are combined: before it, or meanwhile, and by whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tiercel.targets.hopper.fused import Fused

Where = Literal["before", "beside", "first"]
WARPS = 12  # of a thread block, all of which combine in a first turn
IDLE_WARPS = 3  # beside a producer thread
K_TILE = 0.7e-6  # seconds of a k-tile at the clock that power allows
CLUSTER_RATE = 150e9  # bytes read and written each second by a cluster that only combines


@dataclass(frozen=True)
class Combining:
    """``where``: "before", by a kernel of their own; "beside", by the idle warps of all thread
    blocks; "first", by the first ``clusters``, which take no tile in their first turn. ``split``:
    tiles of a thread block whose heads, which read no planes, run ahead of everything else.
    """

    where: Where = "before"
    clusters: int = 0
    split: int = 0

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
    """In the first turn of clusters that would have no tile in the last one, if that suffices."""
    free = spare(amount)
    enough = amount.combined <= free * CLUSTER_RATE * amount.k_tiles * K_TILE
    return Combining("first", free) if lowered.head_products and enough else Combining()


def spare(amount: Amount) -> int:
    """Clusters that have no tile in the last turn.

    >>> spare(Amount(tiles=256, clusters=66, k_tiles=448, combined=0))
    8
    """
    return -amount.tiles % amount.clusters
