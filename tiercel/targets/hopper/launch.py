"""Ready launches: everything that a repeated call needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

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


Made = TypeVar("Made")

#: Prepared calls that are kept of each kind.
MOST_READY = 4096

#: Every dictionary of prepared calls, by its address.
_kept: dict[int, dict[Any, Any]] = {}


def remember(kept: dict[Any, Made], key: Any, made: Made) -> Made:
    """Keep what was prepared, not without end: shapes and addresses may never come again."""
    if len(kept) >= MOST_READY:
        kept.clear()
    _kept[id(kept)] = kept
    kept[key] = made
    return made


def forget() -> None:
    """Prepare all calls anew."""
    for kept in _kept.values():
        kept.clear()
