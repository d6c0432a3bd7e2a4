"""Ready launches: everything that a repeated call needs."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tiercel.targets.hopper.config import THREADS
from tiercel.targets.hopper.launching.kernel import Arguments, Kernel
from tiercel.targets.hopper.launching.tensor_map import TensorMap

if TYPE_CHECKING:
    import torch


class Runnable(Protocol):
    """Something that enqueues work on a stream of the current device."""

    @property
    def launches(self) -> tuple[Launch, ...]:
        """All of it, in order."""
        ...

    def run(self, stream: int) -> None: ...


@dataclass(frozen=True)
class Places:
    """Where an argument holds addresses: 64-bit words at these byte offsets, if they are not 0, and
    tensor maps at its beginning.
    """

    words: tuple[int, ...] = ()
    maps: tuple[TensorMap, ...] = ()


@dataclass(frozen=True)
class Launch:
    """One kernel with its grid and argument. No kernel: nothing to do (an empty output).

    ``places``: of the addresses, where they may change (``movable.py``).
    """

    kernel: Kernel | None
    blocks: int
    arguments: Arguments | None
    threads: int = THREADS
    places: Places | None = None

    @property
    def launches(self) -> tuple[Launch, ...]:
        return (self,)

    def run(self, stream: int) -> None:
        """Enqueue on a stream of the current device."""
        if self.kernel is not None and self.arguments is not None:
            self.kernel.launch(self.blocks, self.arguments, stream, self.threads)


@dataclass(frozen=True)
class Sequence:
    """Launches in order."""

    steps: tuple[Runnable, ...]

    @property
    def launches(self) -> tuple[Launch, ...]:
        return tuple(launch for step in self.steps for launch in step.launches)

    def run(self, stream: int) -> None:
        for step in self.steps:
            step.run(stream)


def on_device(device: int) -> AbstractContextManager[Any]:
    """Make a device the current one, which launches go to."""
    import torch

    here = torch._C._cuda_getDevice() == device
    return nullcontext() if here else torch.cuda.device(device)  # which takes 3 µs


def run(ready: Runnable, a: torch.Tensor, stream: int | None) -> None:
    """Enqueue on ``stream``, or on the current stream of a's device."""
    import torch

    device = a.get_device()
    if stream is None:
        stream = int(torch._C._cuda_getCurrentRawStream(device))
    if torch._C._cuda_getDevice() == device:
        ready.run(stream)
    else:
        with torch.cuda.device(device):
            ready.run(stream)


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
