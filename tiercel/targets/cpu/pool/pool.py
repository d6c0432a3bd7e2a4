"""The thread pool: Python threads that live in generated code and cost nothing when idle.

A worker spins for a fraction of a millisecond after a job, then parks on a lock. There is one pool
per process. While it is busy, a second caller runs on its own thread alone, so that N callers never
start N × cores threads. A forked child starts without workers and makes its own when it needs them.
A caller that has threads of another kind lends them instead (``openmp.py``).
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import weakref
from contextlib import suppress
from typing import Any

from tiercel.targets.cpu.compile import pool_functions
from tiercel.targets.cpu.pool import affinity, openmp, sync

MAX_WORKERS = 62  # the word WAKE has one bit per worker; the caller is one more thread


class Caller:
    """Stands for one call that uses the pool, while it runs."""


class Team:
    """``with Team(n) as threads``: at most n threads, which the pool has for this call.

    1 while another Python thread computes in it, and at the interpreter's end, when its workers
    are stopped one by one; fewer than n where the system starts no more.
    """

    __slots__ = ("_caller", "_threads")

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._caller = Caller()

    def __enter__(self) -> int:
        if self._threads == 1 or sys.is_finalizing() or not pool().acquire(self._caller):
            return 1  # no threads × threads
        threads = min(self._threads, MAX_WORKERS + 1)
        return threads if openmp.lender() is not None else 1 + pool().start(threads - 1)

    def __exit__(self, *_: object) -> None:
        pool().release(self._caller)


class Pool:
    """Workers 1 … n (the caller is worker 0), started when first needed."""

    def __init__(self) -> None:
        # Who uses the pool, by thread: at most one entry, under the key 0. A dictionary, because
        # its setdefault is atomic and, unlike a lock, tells afterwards who succeeded.
        self._caller: dict[int, tuple[int, weakref.ref]] = {}
        self._wake: list[threading.Lock] = []
        self._threads: list[threading.Thread] = []
        self._allowed: frozenset[int] = frozenset()  # CPUs of the caller that woke workers last
        words = (sync.STATES + MAX_WORKERS + 2) * sync.LINE
        self._memory = ctypes.create_string_buffer(words + sync.LINE)
        self._control = -(-ctypes.addressof(self._memory) // sync.LINE) * sync.LINE

    def run(self, function: Any, address: int, params: int, threads: int) -> int:
        """Call ``function(params, t)`` for t < threads, in parallel, and return thread 0's result.

        The caller must hold the pool (:meth:`acquire`) when ``threads`` > 1.
        """
        if threads == 1:
            return function(params, 0)
        lender = openmp.lender()
        if lender is not None:
            result = lender.run(address, params, threads)
            if result is not None:
                return result
        native = pool_functions()
        if self.start(threads - 1) < threads - 1:  # OpenMP's team was too small
            raise RuntimeError(f"the system starts no {threads} threads; allowed: threads=1")
        try:
            native.rouse(self._control, threads)
            self._wake_parked()
            return native.lead(self._control, address, params, threads)
        except BaseException:  # interrupted before the job began: let the workers park again
            native.dismiss(self._control, threads)
            raise

    def acquire(self, caller: Caller) -> bool:
        """Reserve the pool for ``caller`` as long as it lives; False when another one has it.

        An interrupt may strike between any two instructions, also while the caller cleans up. The
        caller is then garbage, and once it is collected, a call of the same thread takes its place.
        """
        mine = threading.get_ident(), weakref.ref(caller)
        thread, holder = self._caller.setdefault(0, mine)
        if thread == mine[0] and holder() is None:
            self._caller[0] = mine
            return True
        return holder() is caller

    def release(self, caller: Caller) -> None:
        """Undo :meth:`acquire`, if it succeeded."""
        if 0 in self._caller and self._caller[0][1]() is caller:
            del self._caller[0]

    def _wake_parked(self) -> None:
        pending = ctypes.c_int64.from_address(self._control + sync.WAKE * sync.LINE)
        if not pending.value:
            return
        self._allowed, elsewhere = affinity.here_and_elsewhere()
        for worker, lock in enumerate(self._wake, start=1):
            if pending.value >> worker & 1:
                affinity.move(self._threads[worker - 1].native_id, elsewhere)
                # An interrupted call may have released the lock without clearing the bit.
                with suppress(RuntimeError):
                    lock.release()
                pending.value &= ~(1 << worker)

    def start(self, workers: int) -> int:
        """The number of workers that there are, at most ``workers``, which are started."""
        native = pool_functions()
        while len(self._wake) < workers:
            worker = len(self._wake) + 1
            lock = threading.Lock()
            lock.acquire()
            state = self._control + (worker + sync.STATES) * sync.LINE
            ctypes.c_int64.from_address(state).value = sync.PARKED
            generation = ctypes.c_int64.from_address(self._control).value
            thread = threading.Thread(
                target=self._work,
                args=(native, worker, generation, lock),
                name=f"tiercel-{worker}",
                daemon=True,
            )
            try:
                thread.start()
            except RuntimeError:  # a limit on processes, or on memory
                return len(self._wake)
            self._threads.append(thread)
            self._wake.append(lock)
        return workers

    def _work(self, native: Any, worker: int, seen: int, wake: threading.Lock) -> None:
        """A worker's life: parked in Python, serving in generated code (which holds no GIL).

        ``self`` keeps the control block alive as long as the thread.
        """
        while True:
            wake.acquire()
            affinity.move(0, self._allowed)  # it runs elsewhere by now, and may go where it likes
            seen = native.serve(self._control, worker, seen)


_pool = Pool()


def pool() -> Pool:
    """The process's pool."""
    return _pool


def _forget() -> None:
    """In a forked child the workers do not exist and locks may be held by nobody."""
    global _pool
    _pool = Pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
