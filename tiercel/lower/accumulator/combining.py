"""When the planes of a product are combined: before it, or meanwhile, and by whom.

For a kernel with an accumulator program inside. Its thread blocks come in clusters, which take the
tiles of the output in turns; in the last turn some of them have none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal

from tiercel.lower.accumulator.program import AccumulatorProgram, Multiply

Where = Literal["before", "beside", "first"]
WARPS = 12  # of a thread block, all of which combine in a first turn
IDLE_WARPS = 3  # beside a producer thread

#: Measured on an H200, where power sets the clock: seconds of a k-tile; bytes that a cluster reads
#: and writes each second which does nothing but combine, and judges the scales of what it reads.
K_TILE, CLUSTER_RATE = 0.8e-6, 120e9
#: Turns up to which a first one without some clusters pays: 1.185 instead of 1.160 times the vendor
#: with 3.9 turns, 1.127 instead of 1.183 with 12.6 (⟨4,2,4;26⟩, interleaved).
MOST_TURNS = 4
MOST_AHEAD = 3  # heads: each needs memory for the sums that it saves
#: Of 26 products with the planes for 12 combined before, 14 of 24 planes are combined meanwhile.
EARLY, LATE = 12, 0.7
#: Sums of programs of more are of many blocks, and combined meanwhile they are rounded at each
#: addition: 1.44 instead of 1.28 times the vendor's error for 49 products.
MOST_PRODUCTS = 32


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
    reads and writes. ``needed``: the share of them that the tiles of the first turn wait for.
    """

    tiles: int
    clusters: int
    k_tiles: int
    combined: float
    needed: float = 1.0

    @property
    def spare(self) -> int:
        """Clusters that have no tile in the last turn.

        >>> Amount(tiles=256, clusters=66, k_tiles=448, combined=0).spare
        8
        """
        return -self.tiles % self.clusters


def choose(amount: Amount, program: AccumulatorProgram, *, judged: bool = False) -> Combining:
    """In the first turn of clusters that would have no tile in the last one, if that suffices.

    As many heads run ahead as take the time of it, where a program has one: 1.146 times the vendor
    at 8192³ with two, 1.120 without (Winograd's scheme, interleaved, 1.099 combined before). Else
    the planes of the first products are combined before. ``judged``: statistics for the guard come
    along, which warps that tails wait for have no time for: 1.093 instead of 1.143 at 8192³.

    >>> from tiercel import schemes
    >>> from tiercel.lower.accumulator import accumulate
    >>> winograd = accumulate(schemes.get("winograd"))
    >>> choose(Amount(tiles=256, clusters=66, k_tiles=448, combined=302e6), winograd)
    Combining(where='first', clusters=8, split=3, early=0)
    """
    free, products = amount.spare, program.multiplies
    if not free or amount.tiles > MOST_TURNS * amount.clusters:
        return Combining()
    turn, rate = amount.k_tiles * K_TILE, free * CLUSTER_RATE
    head, seconds = head_products(program), amount.combined / rate
    if head and judged:
        return Combining()
    if head:
        ahead = min(math.ceil(seconds * products / (turn * head)), MOST_AHEAD)
        ahead = min(ahead, amount.tiles // amount.clusters)
        return Combining("first", free, ahead) if seconds <= turn else Combining()
    enough = LATE * amount.needed * seconds <= turn * EARLY / products
    if enough and EARLY < products <= MOST_PRODUCTS:
        return Combining("first", free, early=EARLY)
    return Combining()


def head_products(program: AccumulatorProgram) -> int:
    """The first products, of plain blocks alone, if what follows them begins a new sum."""
    products = [step for step in program.steps if isinstance(step, Multiply)]
    head = len(list(takewhile(lambda x: _is_plain(program, x), products)))
    return head if head < len(products) and products[head].clear else 0


def _is_plain(program: AccumulatorProgram, step: Multiply) -> bool:
    return program.a_planes[step.a].plain and program.b_planes[step.b].plain
