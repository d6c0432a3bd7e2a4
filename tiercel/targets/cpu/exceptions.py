"""Floating-point exceptions that NumPy warns of, as the processor keeps them for each thread."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from functools import cache

#: ``FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW``, by machine.
WARNED = {"x86_64": 1 | 4 | 8, "aarch64": 1 | 2 | 4}


def raised() -> bool:
    """Whether this thread has raised some since they were looked at last; False if unknown."""
    functions = _functions()
    if functions is None:
        return False
    test, clear, which = functions
    if not test(which):
        return False
    clear(which)
    return True


@cache
def _functions() -> tuple[Callable[[int], int], Callable[[int], int], int] | None:
    try:
        # Called with the GIL: a call takes 0.2 us.
        library = ctypes.PyDLL(None)
        return library.fetestexcept, library.feclearexcept, WARNED[platform.machine()]
    except (AttributeError, OSError, TypeError, KeyError):
        return None
