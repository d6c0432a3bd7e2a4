"""How a fused product is run, which sizes and layouts alone decide: grid, and who combines when."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tiercel.lower.accumulator import AccumulatorProgram
from tiercel.lower.accumulator.combining import Amount, Combining, choose
from tiercel.targets.hopper.config import ITEM_BYTES, Config, Tile
from tiercel.targets.hopper.fused import planes, source, tables
from tiercel.targets.hopper.fused.packed import left_grid, right_grid
from tiercel.targets.hopper.fused.tables import Fused
from tiercel.targets.hopper.launching.occupancy import multiprocessors
from tiercel.targets.hopper.operands.operand import Matrix, oriented

TILE = Tile(128, 256, 4, "cooperative", cluster_m=2)
LEAST_K_TILES = 8  # of a product, beside stores and loads: ``kernels/machine.cuh``
PART_K_TILES = 12  # of one of several parts
#: Products of a thread block, and k-tiles of each, from which on clusters drift so far apart that
#: they have to keep pace (``kernels/pace.cuh``). Read from DRAM without and with it: 24.1 and 10.1
#: GB at 16384³ (⟨4,2,4;26⟩, 104 products), 7.1 and 4.1 GB at 8192 × 28672 × 8192 (Winograd's, 98),
#: 4.9 and 4.5 GB at 8192 × 8192 × 28672 (28), the same at 8192³ (28).
PACED_PRODUCTS, PACED_K_TILES = 60, 48


@dataclass(frozen=True)
class Schedule:
    """How one product of some sizes and layouts is run."""

    lowered: Fused
    config: Config
    blocks: int
    grids: tuple[planes.BlockGrid, planes.BlockGrid]  # of A and of B
    combining: Combining
    rows: int  # of cluster tiles
    columns: int
    k_tiles: int
    dynamic: bool  # B is combined in each call, too
    judged: bool
    slots: int  # saved sums that a tile has room for

    @property
    def inside(self) -> bool:
        """Whether the product's own kernel combines planes."""
        return self.combining.where != "before"

    @property
    def paced(self) -> bool:
        """Whether clusters keep pace."""
        turns = -(-self.rows * self.columns * TILE.cluster // self.blocks)
        products = turns * self.lowered.program.multiplies
        return products >= PACED_PRODUCTS and self.k_tiles >= PACED_K_TILES

    @property
    def counters(self) -> tuple[int, int]:
        """Words that count what of A and of B is combined: workers done, then squares."""
        if not self.inside:
            return 0, 0
        left, right = (1 + math.prod(planes.squares(grid)) for grid in self.grids)
        return left, right if self.dynamic else 0

    @property
    def measured(self) -> tuple[bool, bool]:
        """Whether combining A, and B, leaves the guard's record behind."""
        config, lowered = self.config, self.lowered
        of_a, of_b = (
            self.judged and bool(tables.sums_of(wanted))
            and planes.is_measured(grid, mn_major, self.inside)
            for wanted, grid, mn_major in zip(
                (lowered.a_planes, lowered.b_planes), self.grids,
                (config.a_mn_major, config.b_mn_major), strict=True,
            )
        )  # fmt: skip
        return of_a, of_b and self.dynamic


def schedule(
    a: Matrix, b: Matrix, d: Matrix, program: AccumulatorProgram, device: int, *,
    combining: Combining | None, dynamic: bool, judged: bool, gained: bool, postpones: bool,
) -> Schedule:  # fmt: skip
    """The schedule of D = A·B by ``program``.

    ``dynamic``: B is not packed. ``judged``: the guard looks at the data. ``gained``: operands may
    be multiplied by a gain. ``postpones``: an epilogue follows, beside later products.
    """
    M, N = d.rows // program.m, d.columns // program.n
    rows, columns = -(-M // (TILE.m * TILE.cluster_m)), -(-N // (TILE.n * TILE.cluster_n))
    clusters = multiprocessors(device) // TILE.cluster
    item = ITEM_BYTES[a.dtype]
    k_tiles = max(LEAST_K_TILES, -(-a.columns // program.k * item // 128))  # zeros beyond the end
    parts = max(1, min(tables.MOST_PARTS, k_tiles // PART_K_TILES))
    grids = left_grid(a, program), right_grid(b, program)
    if combining is None:
        lowered = tables.lower(program, a.dtype)
        of_a = planes.plane_bytes(grids[0], lowered.a_planes) + a.rows * a.columns * item
        of_b = planes.plane_bytes(grids[1], lowered.b_planes) + b.rows * b.columns * item
        all_k_tiles = k_tiles * program.multiplies
        amount = Amount.of(rows, columns, clusters, all_k_tiles, of_a, of_b if dynamic else 0)
        # With half as many values to a byte whole clusters have the time to judge them.
        combining = choose(amount, program, judged=judged and item < 4, ending=postpones)
        if item == 1 or (combining.where == "beside" and a.dtype == "float16"):
            combining = Combining()  # idle warps take longer for other types, or were not measured
    inside = combining.where != "before"
    early = combining.early if inside else 0
    lowered = tables.lower(
        program, a.dtype, inside, inside and dynamic, parts, early, inside and judged
    )
    # Another kernel that combines knows no gains: they are 1 there.
    gained = gained and inside and not early and lowered.operand == "bfloat16"
    config = Config(TILE, a.dtype, d.dtype, oriented(a, "a")[1], oriented(b.transposed, "b")[1])
    used = min(clusters, rows * columns + combining.clusters)
    return Schedule(
        replace(lowered, gained=gained), config, used * TILE.cluster, grids, combining,
        rows, columns, k_tiles, dynamic, judged, source.slots(lowered, postpones),
    )  # fmt: skip
