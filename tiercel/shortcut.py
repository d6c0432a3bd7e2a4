"""Products like earlier ones: the next call of the same kind finds its way at once.

A large product empties the caches, and then every object that Python touches has to be fetched: the
way through the front end and the plans' cache takes 5 µs warm and 150 µs cold, which is seen on a
call of some milliseconds. So a product with default options is known by the shapes and strides of
its operands. What is not quite like the earlier one takes the long way, which explains errors, too.

Between products of 0.9 ms, `known_first` adds 1 µs to NumPy's own call, where it had added 5.5 µs
(4000 rounds on an idle machine). Of these, 2 went into the comparison of a key of four tuples: its
hash alone finds the entry, and whatever has the same hash by accident is still NumPy's to multiply.
2 went into a note for `tiercel.last_plan` that was local to the thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from threading import get_ident
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from tiercel.counters import numpys

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
    key: Key


Key = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]

#: By the hash of the key.
KNOWN: dict[int, Known] = {}


def key_of(a: NDArray, b: NDArray) -> Key:
    """What a product is known by, beside the dtypes."""
    return a.shape, b.shape, a.strides, b.strides


def keep(plan: Plan | None, a: NDArray, b: NDArray, run: Way | None) -> None:
    """Remember how the product of a and b was multiplied; see `Known`."""
    if len(KNOWN) >= MOST_KNOWN:
        KNOWN.clear()
    key = key_of(a, b)
    KNOWN[hash(key)] = Known(plan, a.dtype, b.dtype, run, key)


def forget() -> None:
    """Forget all products."""
    KNOWN.clear()


def known_first(product: Callable[P, R]) -> Callable[P, R]:
    """``product(a, b, out)`` that begins with the short ways; faults are left for it to explain."""

    @wraps(product)
    def matmul(a: Any, b: Any, /, out: Any = None, **options: Any) -> Any:
        if not options and type(a) is _ndarray and type(b) is _ndarray:
            if a.nbytes <= TINY and b.nbytes <= TINY and a.dtype is not _float16:
                try:
                    if len(b) > 1 or a.nbytes * b.nbytes < OUTER:
                        return _matmul(a, b, out)
                except (TypeError, ValueError):
                    pass
            key = a.shape, b.shape, a.strides, b.strides
            known = KNOWN.get(hash(key))
            if known is not None and known.a is a.dtype:
                run = known.run
                if run is None:  # written out here: one more function costs 8 us with cold caches
                    planned = known.plan is not None
                    if planned:
                        numpys.calls += 1
                        numpys.latest = known.plan, get_ident()
                    try:
                        return _matmul(a, b, out)
                    except (TypeError, ValueError):  # an out that does not fit
                        numpys.calls -= planned
                elif (
                    known.b is b.dtype and known.key == key
                    and (out is None or type(out) is _ndarray)
                ):  # fmt: skip
                    result = run(a, b, out)
                    if result is not None:
                        return result
        return cast("Any", product)(a, b, out, **options)

    return cast("Callable[P, R]", matmul)
