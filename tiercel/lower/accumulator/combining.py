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

Where = Literal["before", "beside", "first", "both"]
WARPS = 12  # of a thread block, all of which combine in a first turn
IDLE_WARPS = 3  # beside a producer thread

#: Measured on an H200, where power sets the clock: seconds of a k-tile; bytes that a cluster reads
#: and writes each second which does nothing but combine, and judges the scales of what it reads;
#: and those of the idle warps of all thread blocks.
K_TILE, CLUSTER_RATE, IDLE_RATE = 0.8e-6, 120e9, 1.2e12
#: Turns up to which a first one without some clusters pays: 1.185 instead of 1.160 times the vendor
#: with 3.9 turns, 1.127 instead of 1.183 with 12.6 (⟨4,2,4;26⟩, interleaved).
MOST_TURNS = 4
#: Blocks of an operand whose rows an idle warp has the shared memory for (``crew.cuh``).
MOST_BLOCKS_BESIDE = 8
MOST_AHEAD = 3  # heads: each needs memory for the sums that it saves
#: k-tiles of a tile from which on whole clusters have the time for the guard's statistics: 1.167 /
#: 1.128 instead of 1.157 / 1.121 by idle warps with 1568 (8192 × 8192 × 28672), 1.125 / 1.072
#: instead of 1.127 / 1.084 with 448 (8192³).
JUDGED_K_TILES = 1000
#: Of 26 products with the planes for 12 combined before, 14 of 24 planes are combined meanwhile;
#: with those for 7, 20.
EARLY, LATE = 12, 0.7
EARLY_BESIDE, LATE_BESIDE = 7, 0.87
#: Sums of programs of more are of many blocks, and combined meanwhile they are rounded at each
#: addition: 1.44 instead of 1.28 times the vendor's error for 49 products.
MOST_PRODUCTS = 32
BAND = 8  # rows of cluster tiles that are walked together


@dataclass(frozen=True)
class Combining:
    """``where``: "before", by a kernel of their own; "beside", by the idle warps of all thread
    blocks; "first", by the first ``clusters``, which take no tile in their first turn; "both":
    these do some ``sixteenths`` of the work, and idle warps the others. ``split``: tiles of a
    thread block whose heads, which read no planes, run ahead of everything else.
    ``early``: products whose planes are combined before also where the others are not, so that
    there is time for those.
    """

    where: Where = "before"
    clusters: int = 0
    split: int = 0
    early: int = 0
    sixteenths: int = 0

    def workers(self, blocks: int, cluster: int) -> tuple[int, int]:
        """Warps that combine, of ``blocks`` thread blocks: of whole clusters, and idle ones."""
        whole = WARPS * self.clusters * cluster if self.where in ("first", "both") else 0
        return whole, IDLE_WARPS * blocks if self.where in ("beside", "both") else 0


@dataclass(frozen=True)
class Amount:
    """What there is to do.

    Cluster tiles, clusters of the GPU, k-tiles of all products of a tile, bytes that combining
    reads and writes, and how many of them the tiles of the first turn wait for.
    """

    tiles: int
    clusters: int
    k_tiles: int
    combined: float
    needed: float

    @classmethod
    def of(
        cls, rows: int, columns: int, clusters: int, k_tiles: int, left: float, right: float = 0.0
    ) -> Amount:
        """For so many rows and columns of cluster tiles, and bytes for each operand.

        The walk goes by bands of rows, in a band by columns.

        >>> Amount.of(rows=16, columns=56, clusters=66, k_tiles=448, left=302e6).needed
        151000000.0
        """
        bands = -(-clusters // (BAND * columns))
        of_left, of_right = bands * BAND / rows, clusters / (BAND * columns)
        needed = min(1.0, of_left) * left + min(1.0, of_right) * right
        return cls(rows * columns, clusters, k_tiles, left + right, needed)

    @property
    def spare(self) -> int:
        """Clusters that have no tile in the last turn.

        >>> Amount.of(16, 16, clusters=66, k_tiles=448, left=302e6).spare
        8
        """
        return -self.tiles % self.clusters


def choose(
    amount: Amount, program: AccumulatorProgram, *, judged: bool = False, ending: bool = False
) -> Combining:
    """By whom planes are combined, if there is time for it before they are read; else before.

    Where there are few turns, in the first one, by clusters that would have no tile in the last one
    (Winograd's scheme at 8192³, interleaved: 1.162 times the vendor, by idle warps 1.154, before
    1.102). Else by idle warps (4096³: 1.012, before 0.966; both operands of 8192³: 1.126, before
    1.054). As many heads run ahead as take the time of it, where a program has one; where not, the
    planes of the first products are combined before. ``judged``: statistics for the guard come
    along, for which whole clusters have the time where K is long. Else idle warps are best then
    wherever heads run ahead, even where tails have to wait (interleaved, by them, and
    before): 8192 × 4096 × 14336 1.093 and 1.011, 8192³ 1.127 and 1.090 (in the first turn 1.102),
    16384 × 14336 × 4096 1.091 and 1.057, 8192 × 28672 × 8192 1.105 and 1.096, 8192 × 14336 × 4096
    1.074 and 1.076. ``ending``: an epilogue follows, and no kernel of its own combines. Clusters
    that would have no tile are best then where there are any (8192³: 1.004, by idle warps 0.976 to
    0.992), else idle warps (8192 × 4096 × 14336: 0.978 with two heads ahead, 0.934 with one).

    >>> from tiercel import schemes
    >>> from tiercel.lower.accumulator import accumulate
    >>> winograd = accumulate(schemes.get("winograd"))
    >>> choose(Amount.of(16, 16, clusters=66, k_tiles=448, left=302e6), winograd)
    Combining(where='first', clusters=8, split=3, early=0, sixteenths=0)
    >>> choose(Amount.of(8, 8, clusters=66, k_tiles=224, left=75e6), winograd)
    Combining(where='beside', clusters=0, split=0, early=0, sixteenths=0)
    >>> choose(Amount.of(16, 8, 66, k_tiles=784, left=528e6), winograd, judged=True)
    Combining(where='beside', clusters=0, split=2, early=0, sixteenths=0)
    >>> choose(Amount.of(16, 16, 66, k_tiles=1568, left=1.06e9), winograd, judged=True)
    Combining(where='first', clusters=8, split=3, early=0, sixteenths=0)
    """
    head = head_products(program)
    if head and program.multiplies <= MOST_PRODUCTS:
        share = head / program.multiplies
        found = _behind_heads(amount, share)
        if ending or not judged:
            fits = not ending or found.where != "before"
        else:
            fits = found.where == "first" and amount.k_tiles >= JUDGED_K_TILES
        return found if fits else _beside_heads(amount, share)
    if EARLY < program.multiplies <= MOST_PRODUCTS:
        few = max(program.m * program.k, program.k * program.n) <= MOST_BLOCKS_BESIDE
        found = _behind_early_planes(amount, 1 / program.multiplies, few)
    else:
        found = Combining()
    return Combining("beside") if ending and found.where == "before" else found


def _beside_heads(amount: Amount, head: float) -> Combining:
    """By idle warps, beside as many heads as take the time of it; ``head``: share of the products.

    A head that its cluster has no tile for costs nothing. Where all clusters have one tile, nothing
    can run ahead of its tail: 0.988 / 1.000 undivided, 0.974 / 0.982 in two parts (4096³).
    """
    turns = math.ceil(amount.tiles / amount.clusters)
    if turns == 1:
        return Combining("beside")
    heads = math.ceil(amount.combined / IDLE_RATE / (amount.k_tiles * K_TILE * head))
    return Combining("beside", split=min(heads, turns, MOST_AHEAD))


def _behind_heads(amount: Amount, head: float) -> Combining:
    """``head``: share of the products."""
    turn, most = amount.k_tiles * K_TILE, min(MOST_AHEAD, amount.tiles // amount.clusters)

    def ahead(rate: float, total: float) -> int | None:
        """Heads that take as long as ``total`` bytes, if they and what the first product that waits
        takes are enough for the bytes that are needed: who combines walks along K as it does.
        """
        heads = max(1, min(math.ceil(total / rate / (turn * head)), most))
        return min(heads, most) if amount.needed / rate <= turn * head * (heads + 0.5) else None

    free = amount.spare
    rate = free * CLUSTER_RATE
    if free and amount.tiles <= MOST_TURNS * amount.clusters and amount.combined / rate <= turn:
        split = ahead(rate, amount.combined)
        if split is not None:
            return Combining("first", free, split)
    split = ahead(IDLE_RATE, amount.needed)
    return Combining() if split is None else Combining("beside", split=split)


def _behind_early_planes(amount: Amount, product: float, few: bool) -> Combining:
    """``product``: share of one of the products; ``few``: blocks of an operand, see below."""
    turn, free = amount.k_tiles * K_TILE, amount.spare
    if amount.tiles > MOST_TURNS * amount.clusters:
        return Combining()
    if free and LATE * amount.needed / (free * CLUSTER_RATE) <= turn * EARLY * product:
        return Combining("first", free, early=EARLY)
    if few and LATE_BESIDE * amount.needed / IDLE_RATE <= turn * (EARLY_BESIDE + 1) * product:
        return Combining("beside", early=EARLY_BESIDE)
    return Combining()


def head_products(program: AccumulatorProgram) -> int:
    """The first products, of plain blocks alone, if what follows them begins a new sum."""
    products = [step for step in program.steps if isinstance(step, Multiply)]
    head = len(list(takewhile(lambda x: _is_plain(program, x), products)))
    return head if head < len(products) and products[head].clear else 0


def _is_plain(program: AccumulatorProgram, step: Multiply) -> bool:
    return program.a_planes[step.a].plain and program.b_planes[step.b].plain
