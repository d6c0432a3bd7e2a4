"""The memory that a fused product borrows: its arrays, and how they lie in one allocation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from tiercel.targets.hopper.config import SLOT_BYTES
from tiercel.targets.hopper.fused import planes, verdict
from tiercel.targets.hopper.launching.driver import clear_words

if TYPE_CHECKING:
    import torch

    from tiercel.targets.hopper.fused.schedule import Schedule

#: Bytes that each array's address is a multiple of, as torch's own allocations are.
STEP = 512

#: First words of the flags: whether the scheme was refused, consumers that are done, and how far
#: clusters are. They must be zero also where a product finds its planes, and what was found out
#: about them.
FRESH = 3

#: Words before the counters: the first, and records of A and B.
HEADER = FRESH + 2 * verdict.RECORD_WORDS


class Workspace(NamedTuple):
    """Memory of one call: planes of A, of B if it is not packed, saved sums, and counters, zero at
    first.
    """

    a_planes: torch.Tensor
    b_planes: torch.Tensor
    scratch: torch.Tensor
    flags: torch.Tensor


def workspace(like: torch.Tensor, schedule: Schedule) -> Workspace:
    """A new one, of what ``schedule`` needs."""
    import torch

    lowered, (left, right) = schedule.lowered, schedule.grids
    tiles = schedule.blocks * max(1, schedule.combining.split)  # that are begun and not finished
    of_b = planes.plane_bytes(right, lowered.b_planes) if schedule.dynamic else 0

    def halves(size: int) -> torch.Tensor:
        return like.new_empty(size // 2, dtype=torch.float16)

    return Workspace(
        halves(planes.plane_bytes(left, lowered.a_planes)),
        halves(of_b),
        halves(tiles * schedule.slots * SLOT_BYTES),
        like.new_zeros(HEADER + sum(schedule.counters), dtype=torch.int32),
    )


def records(flags: int) -> tuple[int, int]:
    """Addresses of the records of A and B, given that of the flags."""
    left = flags + 4 * FRESH
    return left, left + 4 * verdict.RECORD_WORDS


@dataclass(frozen=True)
class Layout:
    """How the arrays of a ``Workspace`` lie behind one another.

    ``counts``: their elements, of float16; of int32 in the last one, the flags.
    """

    counts: tuple[int, ...]

    @classmethod
    def of(cls, workspace: Workspace) -> Layout:
        """That of a workspace which was allocated in parts."""
        return cls(tuple(x.numel() for x in workspace))

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Where each array begins, and where all end, in bytes.

        >>> Layout((300, 0, 8)).offsets
        (0, 1024, 1024, 1536)
        """
        *halves, flags = self.counts
        sizes = (*(2 * count for count in halves), 4 * flags)
        return tuple(accumulate((-(-size // STEP) * STEP for size in sizes), initial=0))

    @cached_property
    def without_planes(self) -> Layout:
        """For a product that finds planes of A and flags in another one's workspace."""
        return Layout((0, *self.counts[1:-1], 0))

    def allocate(self, like: torch.Tensor) -> torch.Tensor:
        """Memory on the device of ``like``, from torch."""
        import torch

        return like.new_empty(self.offsets[-1], dtype=torch.uint8)

    def array(self, memory: torch.Tensor, index: int) -> torch.Tensor:
        """The array of this index, a view of ``memory``."""
        import torch

        dtype = torch.int32 if index % len(self.counts) == len(self.counts) - 1 else torch.float16
        begin = self.offsets[index % len(self.counts)]
        return memory[begin : begin + self.counts[index] * dtype.itemsize].view(dtype)

    def addresses(self, memory: torch.Tensor) -> list[int]:
        """Where each array begins in ``memory``."""
        begin = memory.data_ptr()
        return [begin + offset for offset in self.offsets[:-1]]

    def arrays(self, memory: torch.Tensor) -> list[torch.Tensor]:
        """All arrays."""
        return [self.array(memory, index) for index in range(len(self.counts))]

    def clear_flags(self, memory: torch.Tensor, stream: int, words: int | None = None) -> None:
        """Enqueue the zeroing of the flags, or of the first ``words``."""
        clear_words(memory.data_ptr() + self.offsets[-2], words or self.counts[-1], stream)
