"""Where a parked worker wakes: not on the CPU of the thread that wakes it.

Linux looks for an idle CPU where a thread ran last, beside it, and seldom further. On two CPUs a
worker that parked for 10 ms woke on its waker's CPU in three of four cases, and both shared it for
the 2 to 8 ms until the scheduler looked again: a product of 4 ms then took 8. So a worker may wake
only elsewhere; as soon as it runs, it may run wherever its waker may.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Set
from contextlib import suppress
from functools import cache
from typing import Any


def here_and_elsewhere() -> tuple[frozenset[int], frozenset[int]]:
    """CPUs that this thread may use, and those of them that it does not run on now.

    Both are empty where the system does not say, or leaves no other CPU.
    """
    current = _current_cpu()
    if current is None:
        return frozenset(), frozenset()
    try:
        allowed = frozenset(os.sched_getaffinity(0))
    except OSError:
        return frozenset(), frozenset()
    elsewhere = allowed - {current()}
    return (allowed, elsewhere) if elsewhere else (frozenset(), frozenset())


def move(thread: int | None, cpus: Set[int]) -> None:
    """Let a thread (system's number; 0: this one) run on ``cpus`` only; nothing if there are none.

    A system that forbids it leaves the thread where it is.
    """
    if cpus and thread is not None:
        with suppress(OSError):
            os.sched_setaffinity(thread, cpus)


@cache
def _current_cpu() -> Any:
    """The C library's ``sched_getcpu``; None where there is none (macOS, Windows)."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    return getattr(ctypes.CDLL(None), "sched_getcpu", None)
