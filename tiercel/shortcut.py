"""Products that a plan has left to NumPy: the next call of the same kind goes there at once.

Looking a plan up takes tens of microseconds when a large product has just emptied the caches; on a
call of a millisecond that is seen. A key holds everything such a plan depends on but the number of
threads, which does not change what NumPy is better at.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from tiercel.options import Options

MOST_KEYS = 4096

_numpys: set[tuple[Any, ...]] = set()


def _key(a: NDArray, b: NDArray, options: Options) -> tuple[Any, ...]:
    return (options, a.dtype, b.dtype, a.shape, b.shape, a.strides, b.strides)


def is_numpys(a: NDArray, b: NDArray, options: Options) -> bool:
    """Whether the product of plain arrays a and b is known to be NumPy's."""
    return _key(a, b, options) in _numpys


def leave_to_numpy(a: NDArray, b: NDArray, options: Options) -> None:
    """Remember that the product of a and b is NumPy's."""
    if len(_numpys) >= MOST_KEYS:
        _numpys.clear()
    _numpys.add(_key(a, b, options))


def forget() -> None:
    """Forget all products."""
    _numpys.clear()
