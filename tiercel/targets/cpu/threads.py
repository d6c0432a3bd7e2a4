"""How many threads a product may use, asked anew at every call (a few microseconds at most)."""

from __future__ import annotations

import math
import multiprocessing
import os
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

from tiercel.targets.cpu.shortcut.numpys_blas import routines

VARIABLE = "TIERCEL_NUM_THREADS"

#: What ``os.environ`` keeps. Asked through it, a variable takes five Python functions: 1 µs, and 10
#: with cold caches, at every call.
_variables: dict[str | bytes, str | bytes] | None = getattr(os.environ, "_data", None)
_KEY = os.fsencode(VARIABLE) if os.name == "posix" else VARIABLE


#: The variable as it was last read, and the number in it; None: it holds none.
_read: tuple[str | bytes | None, int | None] = None, None


def _forced() -> int | None:
    global _read
    text = _variables.get(_KEY) if type(_variables) is dict else os.environ.get(VARIABLE)
    if text is not _read[0]:
        _read = text, _number(os.fsdecode(text or b""))
    return _read[1]


def _number(text: str) -> int | None:
    """The number of threads that the variable asks for; what is none is ignored with a warning.

    Threads without a core of their own would wait for each other: measuring the machine with 8 on
    two cores took 45 s, with 1000 more than 100 s.
    """
    try:
        return min(max(1, int(text)), cores())
    except ValueError:
        if text:
            warnings.warn(
                f"{VARIABLE}={text!r} is not a number of threads; allowed: 1 to {cores()}, the "
                "cores of this process, which are used now",
                RuntimeWarning,
                stacklevel=2,
            )
        return None


def allowed() -> int:
    """Upper bound: cores by affinity and cgroup, and ``TIERCEL_NUM_THREADS``, else BLAS's limit.

    The limit of NumPy's BLAS follows ``threadpoolctl``, ``OPENBLAS_NUM_THREADS``,
    ``OMP_NUM_THREADS`` and joblib; so does tiercel, by asking it. A daemonic child of
    ``multiprocessing`` (a pool worker among many) gets one thread.
    """
    if (forced := _forced()) is not None:
        return forced
    if multiprocessing.current_process().daemon:
        return 1
    limit = cores()
    blas = _blas_threads()
    return max(1, min(limit, blas()) if blas else limit)


def as_now() -> tuple[object | None, bool]:
    """What `allowed` is due to: the variable's value, and whether BLAS's limit counts."""
    text = _variables.get(_KEY) if _variables is not None else None
    alone = multiprocessing.current_process().daemon or cores() == 1
    return text, _forced() is None and not alone


def environment() -> tuple[dict, object] | None:
    """The dict in which Python keeps the environment, and the key of the variable there."""
    return (_variables, _KEY) if type(_variables) is dict else None


@cache
def cores() -> int:
    """Cores this process may use: scheduling affinity, capped by the cgroup's CPU quota."""
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        count = os.cpu_count() or 1
    quota = _cgroup_quota()
    return max(1, min(count, math.ceil(quota)) if quota else count)


def _cgroup_quota() -> float | None:
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        pass
    try:
        root = Path("/sys/fs/cgroup/cpu")
        quota_us = int((root / "cpu.cfs_quota_us").read_text())
        period_us = int((root / "cpu.cfs_period_us").read_text())
        return quota_us / period_us if quota_us > 0 else None
    except (OSError, ValueError):
        return None


@cache
def _blas_threads() -> Callable[[], int] | None:
    """A cheap call that returns the current thread limit of the BLAS that NumPy loaded."""
    if (blas := routines()) is not None:
        return blas.threads
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    for library in ThreadpoolController().select(user_api="blas").lib_controllers:
        if library.internal_api in ("openblas", "mkl", "blis"):
            return lambda: library.get_num_threads() or cores()
    return None
