"""Products that a plan has left to NumPy: the next call of the same kind goes there at once.

Looking a plan up takes tens of microseconds when a large product has just emptied the caches; on a
call of a millisecond that is seen. A key holds everything such a plan depends on but the number of
threads, which does not change what NumPy is better at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from tiercel.counters import here, shortcut_calls
from tiercel.options import Options

if TYPE_CHECKING:
    from tiercel.planner.plan import Plan

MOST_KEYS = 4096

_numpys: dict[tuple[Any, ...], Plan] = {}


def _key(a: NDArray, b: NDArray, options: Options) -> tuple[Any, ...]:
    return (options, a.dtype, b.dtype, a.shape, b.shape, a.strides, b.strides)


def is_numpys(a: NDArray, b: NDArray, options: Options) -> bool:
    """Whether the product of plain arrays a and b is known to be NumPy's; counts it if so."""
    plan = _numpys.get(_key(a, b, options))
    if plan is None:
        return False
    here.plan = plan
    shortcut_calls[0] += 1
    return True


def leave_to_numpy(a: NDArray, b: NDArray, options: Options, plan: Plan) -> None:
    """Remember that ``plan`` leaves the product of a and b to NumPy."""
    if len(_numpys) >= MOST_KEYS:
        _numpys.clear()
    _numpys[_key(a, b, options)] = plan


def forget() -> None:
    """Forget all products."""
    _numpys.clear()
