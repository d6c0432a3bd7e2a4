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
_free: list[mmap.mmap] = []


@contextmanager
def borrow(nbytes: int) -> Iterator[int]:
    """Address of ``nbytes`` of scratch memory, 4096-byte aligned, contents undefined."""
    buffer = _take(nbytes) or _map(nbytes)
    try:
        # The address is valid as long as the map is: it lives in this frame, then in _free.
        yield ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    finally:
        _give(buffer)


def release() -> None:
    """Give all idle buffers back to the system."""
    with _lock:
        _free.clear()


def held() -> int:
    """Bytes of idle buffers."""
    with _lock:
        return sum(map(len, _free))


def _take(nbytes: int) -> mmap.mmap | None:
    with _lock:
        fitting = [b for b in _free if nbytes <= len(b) <= 2 * nbytes + HUGE_PAGE]
        if not fitting:
            return None
        best = min(fitting, key=len)
        _free.remove(best)
        return best


def _map(nbytes: int) -> mmap.mmap:
    nbytes = max(nbytes, mmap.PAGESIZE)
    if os.name == "nt":
        return mmap.mmap(-1, nbytes)
    # Shared memory, mmap's default, gets no huge pages on most systems (shmem_enabled=never).
    buffer = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if nbytes >= HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without transparent huge pages
            buffer.madvise(mmap.MADV_HUGEPAGE)
    return buffer


def _give(buffer: mmap.mmap) -> None:
    with _lock:
        _free.append(buffer)
        while sum(map(len, _free)) > KEEP:
            _free.remove(min(_free, key=len) if len(_free) > 1 else _free[0])


def _forget() -> None:
    """A forked child may have copied the lock in any state; copied buffers only cost memory."""
    global _lock
    _lock = threading.Lock()
    _free.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
