"""Buffers between calls: page-aligned, backed by huge pages where the system has them.

A product at 4096³ needs ~100 MB; mapping and zeroing that anew at every call costs more than 1 % of
its time. Returned buffers are kept, up to a bound, and handed to the next caller that fits.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

HUGE_PAGE = 2 << 20
KEEP = 384 << 20  # bytes kept between calls, over all buffers

_lock = threading.Lock()
_free: list[Buffer] = []


@contextmanager
def borrow(nbytes: int) -> Iterator[int]:
    """Address of ``nbytes`` of scratch memory, 4096-byte aligned, contents undefined."""
    buffer = take(nbytes)
    try:
        yield buffer.address
    finally:
        give(buffer)


def release() -> None:
    """Give all idle buffers back to the system."""
    with _lock:
        _free.clear()


def held() -> int:
    """Bytes of idle buffers."""
    return sum([buffer.nbytes for buffer in _free])


class Buffer:
    """Mapped memory and its address, which is valid as long as this object lives."""

    __slots__ = ("_map", "address", "nbytes")

    def __init__(self, nbytes: int) -> None:
        self._map = _map(nbytes)
        self.nbytes = len(self._map)
        self.address = address_of(self._map)


def address_of(memory: bytearray | mmap.mmap) -> int:
    """Where memory lies that may not be resized any more."""
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def take(nbytes: int) -> Buffer:
    """At least ``nbytes``, for the caller alone until it gives them back.

    Raises ``MemoryError``.
    """
    try:
        last = _free.pop()  # in one step, so without the lock
        if last.nbytes - HUGE_PAGE < nbytes <= last.nbytes:
            return last
        _free.append(last)
    except IndexError:
        pass
    best = None
    with _lock:
        # The smallest that fits; a much larger one is left to a call that needs it.
        for buffer in _free:
            fits = nbytes <= buffer.nbytes <= 2 * nbytes + HUGE_PAGE
            if fits and (best is None or buffer.nbytes < best.nbytes):
                best = buffer
        if best is not None:
            _free.remove(best)
            return best
    return Buffer(nbytes)


def give(buffer: Buffer) -> None:
    """Give back what `take` returned; it is kept for the next call."""
    with _lock:
        _free.append(buffer)
        total = 0
        for kept in _free:
            total += kept.nbytes
        while total > KEEP:
            surplus = min(_free, key=_size) if len(_free) > 1 else _free[0]
            _free.remove(surplus)
            total -= surplus.nbytes


def _size(buffer: Buffer) -> int:
    return buffer.nbytes


def _map(nbytes: int) -> mmap.mmap:
    nbytes = max(nbytes, mmap.PAGESIZE)
    if os.name == "nt":
        return mmap.mmap(-1, nbytes)
    # Shared memory, mmap's default, gets no huge pages on most systems (shmem_enabled=never).
    try:
        buffer = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(
            f"{nbytes / 2**20:.1f} MiB of scratch memory cannot be had ({error}); "
            "workspace= caps it"
        ) from None
    if nbytes >= HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without transparent huge pages
            buffer.madvise(mmap.MADV_HUGEPAGE)
    return buffer


def _forget() -> None:
    """A forked child may have copied the lock in any state; copied buffers only cost memory."""
    global _lock
    _lock = threading.Lock()
    _free.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
