"""Threads that a program's OpenMP runtime has already, lent to a product instead of the pool's.

After each parallel region the threads of OpenMP spin for milliseconds, in the hope of another one.
Where products alternate with other parallel work, as in a PyTorch model, they take cores from the
pool's workers: on two cores, 1024 × 768 · 768 × 768 took 15 ms just after a GELU and 8 ms later.
A product that is itself a parallel region of that runtime finds the same threads awake.

GCC's runtime has ``GOMP_parallel`` (LLVM's and Intel's have it, too): each thread of a team calls a
function. Threads draw their numbers, so that nothing else is asked of the runtime.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tiercel.targets.cpu.compile import pool_functions
from tiercel.targets.cpu.pool import sync


@dataclass(frozen=True, eq=False)
class Runtime:
    """``parallel``: its ``GOMP_parallel``; ``team_size``: address of ``omp_get_num_threads``.

    One product at a time may use it: whoever holds the pool.
    """

    parallel: Any
    team_size: int
    _work: Any = field(
        default_factory=lambda: ctypes.create_string_buffer((sync.TEAM_WORDS + 1) * sync.LINE)
    )

    def run(self, address: int, params: int, threads: int) -> int | None:
        """``function(params, t)`` for t < threads, in parallel, and the result of t = 0.

        None, and nothing has run, where the runtime makes smaller teams.
        """
        work = -(-ctypes.addressof(self._work) // sync.LINE) * sync.LINE

        def word(index: int) -> ctypes.c_int64:
            return ctypes.c_int64.from_address(work + index * sync.LINE)

        for index, value in (
            (sync.TEAM_SIZE, self.team_size), (sync.TEAM_FUNCTION, address),
            (sync.TEAM_PARAMS, params), (sync.TEAM_THREADS, threads), (sync.TEAM_TICKET, 0),
        ):  # fmt: skip
            word(index).value = value
        native = pool_functions()  # which other threads may find first: its code lives as long
        self.parallel(native.member, work, threads, 0)
        return word(sync.TEAM_RESULT).value if word(sync.TEAM_TICKET).value else None


def of_library(path: str) -> Runtime | None:
    """The runtime of a library that is loaded: its own, or one that it was linked with."""
    mode = getattr(os, "RTLD_NOLOAD", None)
    if mode is None:
        return None
    try:
        library = ctypes.CDLL(path, mode=mode | os.RTLD_NOW)
        parallel, team_size = library.GOMP_parallel, library.omp_get_num_threads
    except (OSError, AttributeError):
        return None
    parallel.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
    parallel.restype = None
    address = ctypes.cast(team_size, ctypes.c_void_p).value
    return None if address is None else Runtime(parallel, address)


_lent = threading.local()


@contextmanager
def lent(runtime: Runtime | None) -> Iterator[None]:
    """Products of this thread use the runtime's threads meanwhile; the pool's if it is None."""
    before, _lent.runtime = lender(), runtime
    try:
        yield
    finally:
        _lent.runtime = before


def lender() -> Runtime | None:
    """Whose threads the products of this thread use; None: the pool's."""
    return None if _forked else getattr(_lent, "runtime", None)


#: In a forked child the threads of the parent's runtime do not exist, and it waits for them.
_forked = False


def _forget() -> None:
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
