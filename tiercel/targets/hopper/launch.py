"""Ready launches: everything that a repeated call needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tiercel.targets.hopper.config import THREADS
from tiercel.targets.hopper.driver import Arguments, Kernel


class Runnable(Protocol):
    """Something that enqueues work on a stream of the current device."""

    def run(self, stream: int) -> None: ...


@dataclass(frozen=True)
class Launch:
    """One kernel with its grid and argument. No kernel: nothing to do (an empty output)."""

    kernel: Kernel | None
    blocks: int
    arguments: Arguments | None
    threads: int = THREADS

    def run(self, stream: int) -> None:
        """Enqueue on a stream of the current device."""
        if self.kernel is not None and self.arguments is not None:
            self.kernel.launch(self.blocks, self.arguments, stream, self.threads)


@dataclass(frozen=True)
class Sequence:
    """Launches in order."""

    steps: tuple[Runnable, ...]

    def run(self, stream: int) -> None:
        for step in self.steps:
            step.run(stream)
