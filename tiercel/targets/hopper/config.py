"""What one compiled kernel is: tile, ring, cluster, schedule, layouts and element types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tiercel.errors import TiercelValueError

Schedule = Literal["cooperative", "pingpong"]
DType = str  # a key of ITEM_BYTES

SHARED_BYTES = 232_448  # 227 KiB: what one block of an H100 or H200 may use
CONSUMERS = 2
THREADS = 128 * (1 + CONSUMERS)
ITEM_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "float8_e4m3fn": 1, "float8_e5m2": 1}
OUTPUTS = ("bfloat16", "float16", "float32")
SUBTILE_BYTES = 64 * 128  # staged output: 64 rows of one swizzle span


@dataclass(frozen=True)
class Tile:
    """Tile sizes of one CTA, ring depth, cluster and schedule: what a tuner may vary.

    ``combine_blocks``: blocks of A that idle warps combine meanwhile, which takes shared memory.
    By multicast, ``cluster_m`` CTAs of a cluster share a tile of B, ``cluster_n`` one of A.

    >>> print(Tile(128, 256, 4, "cooperative", cluster_m=2))
    cooperative 128x256, 4 stages, cluster 2x1
    """

    m: int
    n: int
    stages: int
    schedule: Schedule
    cluster_m: int = 1
    cluster_n: int = 1
    combine_blocks: int = 0

    def __post_init__(self) -> None:
        if self.m % 64 or self.n % 64 or not 64 <= self.n <= 256 or self.blocks < 1:
            raise TiercelValueError(
                f"tile {self.m}x{self.n} is not possible with the {self.schedule} schedule: the "
                "sides are multiples of 64, n at most 256, and each consumer needs 64 rows"
            )
        if self.accumulators > 128:
            raise TiercelValueError(
                f"tile {self.m}x{self.n} needs {self.accumulators} accumulator registers a thread; "
                "128 fit. Take a smaller tile"
            )
        if self.cluster > 2:
            raise TiercelValueError(
                f"cluster {self.cluster_m}x{self.cluster_n} is too large: of clusters of 4 only 30 "
                "fit on 132 SMs. Use at most 2 CTAs"
            )
        if self.shared_bytes > SHARED_BYTES:
            raise TiercelValueError(
                f"{self} needs {self.shared_bytes} bytes of shared memory, {SHARED_BYTES} exist. "
                "Use fewer stages"
            )

    @property
    def cluster(self) -> int:
        """CTAs in a cluster."""
        return self.cluster_m * self.cluster_n

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
        barriers = 16 * self.stages + 8 * 8
        items = self.combine_blocks * 3 * 2 * 4 * 512  # 3 warps, 2 items of 4 rows of 512 bytes
        return self.stages * self.stage_bytes + CONSUMERS * 2 * SUBTILE_BYTES + items + barriers

    def __str__(self) -> str:
        return (
            f"{self.schedule} {self.m}x{self.n}, {self.stages} stages, "
            f"cluster {self.cluster_m}x{self.cluster_n}"
        )


@dataclass(frozen=True)
class Config:
    """A tile and everything else that is compiled in.

    ``operand`` float32 is multiplied as TF32.
    ``a_mn_major``: A (M, K) is contiguous along M (a transposed view of a row-major array);
    ``b_mn_major``: B (K, N) is contiguous along N, the usual row-major B. ``with_c``: the epilogue
    adds β·C. ``direct``: threads store the output themselves, which TMA cannot address.
    """

    tile: Tile
    operand: DType
    output: DType
    a_mn_major: bool
    b_mn_major: bool
    with_c: bool = False
    direct: bool = False

    @property
    def tile_k(self) -> int:
        """Elements of K in a stage: 128 bytes."""
        return 128 // ITEM_BYTES[self.operand]

    @property
    def name(self) -> str:
        """Short name for files."""
        a, b = "nt"[self.a_mn_major], "tn"[self.b_mn_major]
        tile = f"{self.tile.schedule}-{self.tile.m}x{self.tile.n}x{self.tile.stages}"
        return (
            f"{self.operand}-{self.output}-{a}{b}-{tile}-{self.tile.cluster_m}{self.tile.cluster_n}"
        )

    def __str__(self) -> str:
        a, b = ("MK"[not self.a_mn_major], "NK"[not self.b_mn_major])
        plus = " + beta C" if self.with_c else ""
        return f"{self.tile}, {self.operand} {a}x{b}-major -> {self.output}{plus}"
