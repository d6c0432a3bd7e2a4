"""Products like earlier ones: the next call of the same kind finds its way at once.

A large product empties the caches, and then every object that Python touches has to be fetched: the
way through the front end and the plans' cache takes 5 µs warm and 150 µs cold, which is seen on a
call of some milliseconds. So a product with default options is known by the shapes and strides of
its operands. What is not quite like the earlier one takes the long way, which explains errors, too.

Between products of 1 ms, `known_first` adds 13 µs to NumPy's own call (medians; warm 1 µs). As the
first lines of ``matmul`` itself it added 23: defaults of 14 options were fetched, and compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from tiercel.counters import here, shortcut_calls

if TYPE_CHECKING:
    from tiercel.planner.plan import Plan

P = ParamSpec("P")
R = TypeVar("R")

MOST_KNOWN = 4096

#: Operands of at most this many bytes each go straight to NumPy. Square, that is 128^3 in float32,
#: 90^3 in float64, 64^3 in complex128: 30 to 50 us, where no plan saves more than its own look-up.
TINY = 64 * 1024

#: Product of the operands' bytes from which an outer product (K = 1) is worth the way to a faster
#: routine than NumPy's: 256 x 256 in float32, 0.15 ms.
OUTER = 1 << 20

_ndarray, _float16, _matmul = np.ndarray, np.dtype(np.float16), np.matmul


Way = Callable[[NDArray, NDArray, NDArray | None], NDArray | None]


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """How to multiply arrays of two dtypes, whose shapes and strides are the key.

    ``run(a, b, out)`` returns the result, or None where the long way must be taken; None: the
    product is left to NumPy, whatever the number of threads. ``plan``: None for a product that is
    never planned. dtypes are compared by identity, which is all that an array's own dtype needs;
    others go the long way.
    """

    plan: Plan | None
    a: np.dtype
    b: np.dtype
    run: Way | None


#: By (a.shape, b.shape, a.strides, b.strides).
KNOWN: dict[tuple[Any, ...], Known] = {}


def keep(known: Known, a: NDArray, b: NDArray) -> None:
    """Remember how the product of a and b was multiplied."""
    if len(KNOWN) >= MOST_KNOWN:
        KNOWN.clear()
    KNOWN[a.shape, b.shape, a.strides, b.strides] = known


def forget() -> None:
    """Forget all products."""
    KNOWN.clear()


def known_first(product: Callable[P, R]) -> Callable[P, R]:
    """``product(a, b, out)`` that begins with the short ways; faults are left for it to explain."""

    @wraps(product)
    def matmul(a: Any, b: Any, /, out: Any = None, **options: Any) -> Any:
        if (
            not options and type(a) is _ndarray and type(b) is _ndarray
            and (out is None or type(out) is _ndarray)
        ):  # fmt: skip
            if a.nbytes <= TINY and b.nbytes <= TINY and a.dtype is not _float16:
                try:
                    if len(b) > 1 or a.nbytes * b.nbytes < OUTER:
                        return _matmul(a, b, out)
                except (TypeError, ValueError):
                    pass
            known = KNOWN.get((a.shape, b.shape, a.strides, b.strides))
            if known is not None and known.a is a.dtype and known.b is b.dtype:
                if known.run is not None:
                    result = known.run(a, b, out)
                    if result is not None:
                        return result
                else:  # written out here: one more function costs 8 us where the caches are cold
                    planned = known.plan is not None
                    if planned:
                        here.plan = known.plan
                        shortcut_calls[0] += 1
                    try:
                        return _matmul(a, b, out)
                    except (TypeError, ValueError):  # an out that does not fit
                        shortcut_calls[0] -= planned
        return cast("Any", product)(a, b, out, **options)

    return cast("Callable[P, R]", matmul)
