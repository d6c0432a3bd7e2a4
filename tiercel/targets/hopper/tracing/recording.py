"""What a traced kernel wrote, as arrays: timestamps of each warp group of each CTA."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from tiercel.errors import TiercelValueError
from tiercel.targets.hopper.config import ITEM_BYTES, Tile

#: What begins at a timestamp; ``kernels/trace.cuh`` has the same list. A tile of a consumer:
#: ``turn`` (waits for the other one), ``row`` and ``column`` (of the tile), for each k-tile
#: ``want`` (waits for its stage) and ``have``, ``drain`` (waits for the last products),
#: ``epilogue``, for each subtile ``free`` (waits for staging memory), ``fill`` and ``sent``, then
#: ``done``. The producer: ``want`` (waits until a stage is empty) and ``have`` (loads).
MARKS = (
    "turn", "row", "column", "want", "have", "drain", "epilogue", "free", "fill", "sent", "done",
)  # fmt: skip
GROUPS = ("producer", "consumer 0", "consumer 1")
NOTHING = np.uint64(2**64 - 1)
CLOCK_BITS = 40

#: Multiply-adds of one multiprocessor's tensor cores in a cycle, by bytes of an operand's element:
#: 989 TFLOP/s of bfloat16 at 1.83 GHz on 132 of them (NVIDIA's H100 data sheet).
MACS = {1: 4096, 2: 2048, 4: 1024}


@dataclass(frozen=True)
class Traced:
    """The product that was traced, and by what kernel."""

    M: int
    N: int
    K: int
    dtype: str
    tile: Tile
    epilogue: str = ""

    @property
    def k_tiles(self) -> int:
        """Stages of one tile."""
        return -(-self.K * ITEM_BYTES[self.dtype] // 128)

    @property
    def k_tile_cycles(self) -> float:
        """Cycles that the tensor cores need for one stage, without a pause."""
        item = ITEM_BYTES[self.dtype]
        return self.tile.m * self.tile.n * (128 // item) / MACS[item]

    def __str__(self) -> str:
        fused = f", {self.epilogue}" if self.epilogue else ""
        return f"{self.M} x {self.N} x {self.K} {self.dtype}{fused}: {self.tile}"


@dataclass(frozen=True)
class Lane:
    """Marks of one warp group in the order of time: clock in cycles, what, and its value."""

    clock: NDArray[np.int64]
    mark: NDArray[np.uint8]
    value: NDArray[np.uint16]
    full: bool = False  # there may have been more

    def of(self, *names: str) -> NDArray[np.bool_]:
        """Which marks are one of these."""
        return np.isin(self.mark, [MARKS.index(name) for name in names])


@dataclass(frozen=True)
class Recording:
    """As the kernel wrote it: ``marks`` uint64 (CTAs, 3, capacity), ``times`` uint64 (CTAs, 5).

    ``times``: multiprocessor; clock and nanoseconds at the start; the same at the end.
    """

    of: Traced
    marks: NDArray[np.uint64]
    times: NDArray[np.uint64]

    def lane(self, cta: int, group: int) -> Lane:
        """The marks of a warp group, clocks counted from the start of its CTA.

        >>> words = np.full((1, 3, 4), NOTHING)
        >>> words[0, 0, :2] = 107 << 24 | 5 << 8 | 3, 130 << 24 | 5 << 8 | 4
        >>> tile = Tile(128, 128, 6, "pingpong")
        >>> made = Recording(Traced(128, 128, 64, "bfloat16", tile), words,
        ...                  np.array([[0, 100, 0, 200, 50]], np.uint64))
        >>> made.lane(0, 0).clock.tolist(), made.lane(0, 0).value.tolist()
        ([7, 30], [5, 5])
        """
        words = self.marks[cta, group]
        held = words[words != NOTHING]
        wrap = np.uint64(2**CLOCK_BITS - 1)
        clock = ((held >> np.uint64(24)) - self.times[cta, 1]) & wrap
        return Lane(
            clock.astype(np.int64),
            (held & np.uint64(0xFF)).astype(np.uint8),
            ((held >> np.uint64(8)) & np.uint64(0xFFFF)).astype(np.uint16),
            full=len(held) == len(words),
        )

    def cycles(self, cta: int) -> int:
        """From start to end of a CTA."""
        return int((self.times[cta, 3] - self.times[cta, 1]) & np.uint64(2**CLOCK_BITS - 1))

    def nanoseconds(self) -> tuple[NDArray[np.float64], float]:
        """Start of each CTA after the first one's, and nanoseconds of a cycle."""
        start, stop = self.times[:, 2].astype(np.int64), self.times[:, 4].astype(np.int64)
        cycles = sum(self.cycles(cta) for cta in range(len(self.times)))
        of_a_cycle = float((stop - start).sum() / max(cycles, 1))
        return (start - start.min()).astype(np.float64), of_a_cycle

    def save(self, file: Path) -> None:
        """Write an ``.npz``: record on one machine, look at it on another."""
        np.savez_compressed(
            file, marks=self.marks, times=self.times, of=json.dumps(asdict(self.of))
        )


def load(file: Path) -> Recording:
    """Read what :meth:`Recording.save` wrote. Raises ``TiercelValueError`` for anything else."""
    try:
        with np.load(file) as held:
            of = json.loads(str(held["of"]))
            of["tile"] = Tile(**of["tile"])
            return Recording(Traced(**of), held["marks"], held["times"])
    except (OSError, EOFError, BadZipFile, KeyError, TypeError, ValueError) as problem:
        # NumPy takes what it does not know for a pickle, and tells how to open it unsafely.
        raise TiercelValueError(
            f"{file} is no recording of a kernel ({type(problem).__name__}); allowed: a file that "
            "`tiercel trace --save` wrote"
        ) from None
