"""Numba, which only the search needs: the extra ``tiercel[search]``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tiercel.errors import TiercelRuntimeError

try:
    import numba
except ImportError:
    numba = None


def require_numba() -> None:
    """Refuse to go on without numba.

    Raises:
        TiercelRuntimeError: numba is not installed.
    """
    if numba is None:
        raise TiercelRuntimeError(
            "searching for schemes needs numba, which is not installed: "
            "pip install 'tiercel[search]'; reading, checking and running schemes works without it"
        )


def njit(function: Callable[..., Any]) -> Any:
    """Compile at the first call and keep the machine code on disk; without numba, fail there."""
    if numba is None:

        def refuse(*_: Any) -> Any:
            require_numba()

        return refuse
    return numba.njit(cache=True, nogil=True)(function)
