"""The memory that a fused product borrows, as one allocation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

from tiercel.targets.hopper.launching.driver import clear_words

if TYPE_CHECKING:
    import torch

    from tiercel.targets.hopper.fused.product import Workspace

#: Bytes that each array's address is a multiple of, as torch's own allocations are.
STEP = 512

#: First words of the flags: whether the scheme was refused, consumers that are done, and how far
#: clusters are. They must be zero also where a product finds its planes, and what was found out
#: about them.
FRESH = 3


@dataclass(frozen=True)
class Layout:
    """How the arrays of a ``product.Workspace`` lie behind one another.

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
