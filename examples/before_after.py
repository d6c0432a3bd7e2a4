"""The same work by torch and by tiercel, by turns, and a table of both."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import nn

import tiercel


@dataclass(frozen=True)
class Times:
    """Milliseconds of one way to run: all of it, and its linear layers' forward alone."""

    total: float
    linear: float


class LinearClock:
    """Adds up the time between entering and leaving the forward of every linear layer."""

    def __init__(self, model: nn.Module) -> None:
        self.marks: list[tuple[Any, Any]] = []
        self.open: list[Any] = []
        for layer in model.modules():
            if isinstance(layer, nn.Linear):
                layer.register_forward_pre_hook(lambda *_: self.open.append(mark()))
                layer.register_forward_hook(lambda *_: self.marks.append((self.open.pop(), mark())))

    def taken(self) -> float:
        """Milliseconds since the last call, and forget them."""
        total = sum(between(start, end) for start, end in self.marks)
        self.marks.clear()
        return total


def mark() -> Any:
    """Now, on the device that computes."""
    if not torch.cuda.is_available():
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def between(start: Any, end: Any) -> float:
    """Milliseconds from one mark to another."""
    if isinstance(start, float):
        return 1e3 * (end - start)
    end.synchronize()
    return start.elapsed_time(end)


def once(work: Callable[[], object], clock: LinearClock) -> Times:
    """One run."""
    start = mark()
    work()
    total = between(start, mark())
    return Times(total, clock.taken())


@contextmanager
def patched(model: nn.Module, by_tiercel: bool, **options: Any) -> Iterator[None]:
    """The model as it is, or patched."""
    if by_tiercel:
        with tiercel.patch(model, **options):
            yield
    else:
        yield


def compare(
    model: nn.Module, work: Callable[[], object], repeats: int, **options: Any
) -> tuple[Times, Times, float, float]:
    """Medians of torch and of tiercel, and the medians of the paired gains (total, linear)."""
    clock = LinearClock(model)
    runs: tuple[list[Times], list[Times]] = ([], [])
    for _ in range(1 + repeats):  # the first round compiles and plans
        for by_tiercel in (False, True):
            with patched(model, by_tiercel, **options):
                if options.get("pack_weights"):
                    work()
                    clock.taken()
                runs[by_tiercel].append(once(work, clock))
    torchs, ours = (run[1:] for run in runs)
    pairs = list(zip(torchs, ours, strict=True))
    return (
        _median(torchs),
        _median(ours),
        median(a.total / b.total for a, b in pairs),
        median(a.linear / b.linear for a, b in pairs),
    )


def _median(times: list[Times]) -> Times:
    return Times(median(t.total for t in times), median(t.linear for t in times))


def print_row(name: str, torchs: Times, ours: Times, gains: tuple[float, float]) -> None:
    """One line of the table under ``HEAD``."""
    print(
        f"{name:>10}  {torchs.linear:10.1f} {ours.linear:10.1f} {gains[1]:6.3f}x"
        f"  {torchs.total:10.1f} {ours.total:10.1f} {gains[0]:6.3f}x",
        flush=True,
    )


HEAD = (
    f"{'':>10}  {'linear layers, forward, ms':^29}  {'end to end, ms':^29}\n"
    f"{'tokens':>10}  {'torch':>10} {'tiercel':>10} {'gain':>7}"
    f"  {'torch':>10} {'tiercel':>10} {'gain':>7}"
)
