"""What one compiled kernel is: tile, ring, cluster, schedule, layouts and element types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tiercel.errors import TiercelValueError

Schedule = Literal["cooperative", "pingpong"]
DType = str  # a key of ITEM_BYTES
Scaling = Literal["none", "number", "vectors", "blocks", "column blocks"]  # see ``scales.py``

SHARED_BYTES = 232_448  # 227 KiB: what one block of an H100 or H200 may use
CONSUMERS = 2
THREADS = 128 * (1 + CONSUMERS)
ITEM_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "float8_e4m3fn": 1, "float8_e5m2": 1}
OUTPUTS = ("bfloat16", "float16", "float32")
SLOT_BYTES = 128 * 256 * 2 + 2 * 128 * 4  # a scheme's saved sum: ``kernels/slots.cuh``
SUBTILE_BYTES = 64 * 128  # staged output: 64 rows of one swizzle span
CLOSING_BYTES = 16 * CONSUMERS  # barriers of ``kernels/closing.cuh``
MOST_GROUPS = 512  # as in ``kernels/grouped.cuh``


@dataclass(frozen=True)
class Tile:
    """Tile sizes of one CTA, ring depth, cluster and schedule: what a tuner may vary.

    By multicast, ``cluster_m`` CTAs of a cluster share a tile of B, ``cluster_n`` one of A;
    ``cluster_k`` split the K of one tile.

    >>> print(Tile(128, 256, 4, "cooperative", cluster_m=2))
    cooperative 128x256, 4 stages, cluster 2x1
    """

    m: int
    n: int
    stages: int
    schedule: Schedule
    cluster_m: int = 1
    cluster_n: int = 1
    cluster_k: int = 1

    def __post_init__(self) -> None:
        if self.m % 64 or self.n % 32 or not 64 <= self.n <= 256 or self.blocks < 1:
            raise TiercelValueError(
                f"tile {self.m}x{self.n} is not possible with the {self.schedule} schedule: m is a "
                "multiple of 64, n one of 32 from 64 to 256, and each consumer needs 64 rows"
            )
        if self.accumulators > 192:
            raise TiercelValueError(
                f"tile {self.m}x{self.n} needs {self.accumulators} accumulator registers a thread; "
                "192 fit, and 48 others. Take a smaller tile"
            )
        if self.cluster > 2:
            raise TiercelValueError(
                f"cluster {self._cluster} is too large: of clusters of 4 only 30 fit on 132 SMs. "
                "Use at most 2 CTAs"
            )
        if self.cluster_k > 1 and (self.schedule == "pingpong" or self.accumulators > 64):
            raise TiercelValueError(
                f"{self} cannot split K in a cluster: that is for cooperative tiles of 128 rows "
                "and at most 128 columns, as large as memory for outputs has room"
            )
        if self.shared_bytes > SHARED_BYTES:
            raise TiercelValueError(
                f"{self} needs {self.shared_bytes} bytes of shared memory, {SHARED_BYTES} exist. "
                "Use fewer stages"
            )

    @property
    def cluster(self) -> int:
        """CTAs in a cluster."""
        return self.cluster_m * self.cluster_n * self.cluster_k

    @property
    def blocks(self) -> int:
        """64-row blocks of one consumer."""
        return self.m // 64 // (CONSUMERS if self.schedule == "cooperative" else 1)

    @property
    def accumulators(self) -> int:
        """Accumulator registers of a thread."""
        return self.blocks * self.n // 2

    @property
    def stage_bytes(self) -> int:
        """One stage of the ring: 128 bytes along K of each row of A and column of B."""
        return (self.m + self.n) * 128

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory; mirrors ``Layout`` in ``kernels/pipeline.cuh``."""
        inbox = 8 * (self.cluster_k > 1)  # a barrier, see ``kernels/split.cuh``
        barriers = 16 * self.stages + inbox
        return self.stages * self.stage_bytes + CONSUMERS * 2 * SUBTILE_BYTES + barriers

    def more_bytes(self, operand: int) -> int:
        """More shared memory, if an operand of the epilogue takes ``operand`` bytes of a consumer.

        In PingPong the consumers take turns with them. Two subtiles for each exist anyway.
        """
        if operand == 0:
            return 0
        areas = 1 if self.schedule == "pingpong" else CONSUMERS
        return areas * operand - CONSUMERS * 2 * SUBTILE_BYTES + 8 * CONSUMERS  # barriers

    def __str__(self) -> str:
        return f"{self.schedule} {self.m}x{self.n}, {self.stages} stages, cluster {self._cluster}"

    @property
    def _cluster(self) -> str:
        split = f"x{self.cluster_k}" if self.cluster_k > 1 else ""
        return f"{self.cluster_m}x{self.cluster_n}{split}"


@dataclass(frozen=True)
class Config:
    """A tile and everything else that is compiled in.

    ``operand`` float32 is multiplied as TF32. ``operand_b``: of B, if it is another kind of float8.
    ``a_mn_major``: A (M, K) is contiguous along M (a transposed view of a row-major array);
    ``b_mn_major``: B (K, N) is contiguous along N, the usual row-major B. ``with_c``: the epilogue
    adds β·C. ``direct``: threads store the output themselves, which TMA cannot address.
    ``grouped``: groups of rows of A have a B each. ``promoted``: sums of 128 float8 products are
    added up in float32, not in the tensor cores. ``scaling``: of float8 operands by scales on the
    device, see ``scales.py``. ``fragments``: A goes through registers, as 4-byte types must that
    are not K-major. ``swapped``: the kernel's A·B is Dᵀ, and D is stored. ``traced``: the warp
    groups write timestamps, see ``tracing/``. ``operand_bytes``: shared memory of a
    consumer for an operand of the epilogue that TMA brings, and then for outputs; 0 if none.
    ``closes``: idle warps complete rows that are reduced, see ``kernels/closing.cuh``.
    ``stream_k``: all clusters share the tiles of the last turn, see ``products/stream_k.py``.
    ``paced``: clusters walk along K together, see ``paced.py``.
    ``neighbours``: B's rows in another order, see ``kernels/store_neighbours.cuh``.
    """

    tile: Tile
    operand: DType
    output: DType
    a_mn_major: bool
    b_mn_major: bool
    with_c: bool = False
    direct: bool = False
    grouped: bool = False
    promoted: bool = False
    scaling: Scaling = "none"
    fragments: bool = False
    swapped: bool = False
    traced: bool = False
    operand_b: DType | None = None
    operand_bytes: int = 0
    closes: bool = False
    stream_k: bool = False
    paced: bool = False
    neighbours: bool = False

    def __post_init__(self) -> None:
        columns = (64, 128, 256) if self.scaling == "blocks" else (64, 128, 192, 256)
        alternating = self.tile.schedule == "cooperative" and self.tile.n in columns
        if self.promoted and not (alternating and self.tile.blocks * self.tile.n <= 256):
            raise TiercelValueError(
                f"{self.tile} cannot add up float8 products in float32: one consumer adds while "
                "the other multiplies, and an instruction's columns share a scale. Take a "
                f"cooperative tile of {', '.join(map(str, columns))} columns"
            )
        if self.tile.n % 64 and (self.b_mn_major or self.swapped or self.grouped):
            raise TiercelValueError(
                f"{self.tile} has {self.tile.n} columns; a multiple of 64 is needed where B is "
                "contiguous along N, D is stored transposed or rows are grouped"
            )
        if self.fragments and not (self.a_mn_major and ITEM_BYTES[self.operand] == 4):
            raise TiercelValueError(
                f"A of {self.operand} goes through registers only if it has 4-byte elements and is "
                "contiguous along M"
            )
        if self.fragments and self.stream_k and self.tile.blocks > 1:
            raise TiercelValueError(
                f"{self.tile} gives a consumer {self.tile.blocks} blocks of 64 rows; where A goes "
                "through registers, too few are left for sums of others. Take a tile of one block: "
                "cooperative of 128 rows, or do not share the last turn"
            )
        if self.by_blocks and not self.promoted:
            raise TiercelValueError(
                "scales of blocks of K are applied to sums of 128 products: set promoted"
            )
        if self.scaling != "none" and (self.tile.cluster_k > 1 or self.with_c or self.grouped):
            raise TiercelValueError(
                f"{self} is not possible: with scales K is not split, C not added and rows not "
                "grouped"
            )
        if self.shared_bytes > SHARED_BYTES:
            raise TiercelValueError(
                f"{self} needs {self.shared_bytes} bytes of shared memory, {SHARED_BYTES} exist. "
                "Use fewer stages"
            )

    @property
    def boxes(self) -> int:
        """TMA boxes of an operand's tile that no other CTA shares.

        Two where clusters share A or B from tile to tile, as ``kernels/grouped.cuh`` says.
        """
        return self.tile.cluster_m if self.grouped else 1

    @property
    def by_blocks(self) -> bool:
        """Whether blocks of K have their own scales."""
        return self.scaling in ("blocks", "column blocks")

    @property
    def tile_k(self) -> int:
        """Elements of K in a stage: 128 bytes."""
        return 128 // ITEM_BYTES[self.operand]

    @property
    def wgmma_n(self) -> int:
        """Columns of one tensor core instruction. Beside 256 a second accumulator has 128."""
        return 128 if self.promoted and self.tile.n == 256 else self.tile.n

    @property
    def store_span(self) -> int:
        """Bytes of a row that one TMA store takes; mirrors ``narrow`` in ``kernels/store.cuh``."""
        return 128 if self.tile.n * ITEM_BYTES[self.output] % 128 == 0 else 64

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory: the tile's, a table of the groups, scales, and more barriers."""
        table = 4 * (MOST_GROUPS + 1) if self.grouped else 0
        more = self.tile.more_bytes(self.operand_bytes)
        closing = CLOSING_BYTES * self.closes
        return self.tile.shared_bytes + table + self.scale_bytes + more + closing

    @property
    def scale_bytes(self) -> int:
        """Shared memory of scales; mirrors ``Layout`` in ``kernels/pipeline.cuh``."""
        if self.by_blocks:
            columns = self.tile.n if self.scaling == "column blocks" else 4
            return self.tile.stages * (self.tile.m + columns) * 4
        if self.scaling == "vectors":  # of each consumer's columns and rows
            return CONSUMERS * (self.tile.n + 64 * self.tile.blocks) * 4
        return 0

    @property
    def name(self) -> str:
        """Short name for files."""
        a, b = "nt"[self.a_mn_major], "tn"[self.b_mn_major]
        tile = f"{self.tile.schedule}-{self.tile.m}x{self.tile.n}x{self.tile.stages}"
        cluster = f"{self.tile.cluster_m}{self.tile.cluster_n}{self.tile.cluster_k}"
        kinds = self.operand + (f"-{self.operand_b}" if self.operand_b else "")
        shared = "-shared" * self.stream_k + "-paced" * self.paced
        return f"{kinds}-{self.output}-{a}{b}-{tile}-{cluster}{shared}"

    def __str__(self) -> str:
        a, b = ("MK"[not self.a_mn_major], "NK"[not self.b_mn_major])
        plus = (" + beta C" if self.with_c else "") + (", grouped" if self.grouped else "")
        plus += ", A in registers" if self.fragments else ""
        plus += ", stored transposed" if self.swapped else ""
        plus += ", promoted" if self.promoted else ""
        plus += ", last turn shared" if self.stream_k else ""
        plus += ", in pace" if self.paced else ""
        plus += f", scales of {self.scaling}" if self.scaling != "none" else ""
        kinds = self.operand + (f" by {self.operand_b}" if self.operand_b else "")
        return f"{self.tile}, {kinds} {a}x{b}-major -> {self.output}{plus}"
