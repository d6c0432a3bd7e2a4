"""Products like earlier ones: the next call of the same kind finds its way at once.

A large product empties the caches, and then every object that Python touches has to be fetched: the
way through the front end and the plans' cache takes 5 µs warm and 150 µs cold, which is seen on a
call of some milliseconds. So a product with default options is known by the shapes and strides of
its operands. What is not quite like the earlier one takes the long way, which explains errors, too.

A built-in function (``targets/cpu/shortcut/known.py``) knows them, the shortest way there is. Where
there is none they are looked up here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from tiercel import ufuncs
from tiercel.counters import numpys

if TYPE_CHECKING:
    from tiercel.planner.plan import Plan
    from tiercel.targets.cpu.shortcut.alone import Alone

P = ParamSpec("P")
R = TypeVar("R")

MOST_KNOWN = 4096

#: Operands of at most this many bytes each go straight to NumPy. Square, that is 128^3 in float32,
#: 90^3 in float64, 64^3 in complex128: 30 to 50 us, where no plan saves more than its own look-up.
TINY = 64 * 1024

#: Product of the operands' bytes from which an outer product (K = 1) is worth the way to a faster
#: routine than NumPy's: 256 x 256 in float32, 0.15 ms.
OUTER = 1 << 20

_ndarray, _float16, _matmul = np.ndarray, np.dtype(np.float16), ufuncs.matmul


Way = Callable[[NDArray, NDArray, NDArray | None], NDArray | None]


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """How to multiply arrays of two dtypes, whose shapes and strides are the key.

    ``run(a, b, out)`` returns the result, or None where the long way must be taken; None: the
    product is left to NumPy, whatever the number of threads. ``plan``, and ``number``: of it, see
    ``counters.numpys``; None and 0 for a product that is never planned. dtypes are compared by
    identity, which is all that an array's own dtype needs; others go the long way.
    """

    plan: Plan | None
    number: int
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


class _AtOnce:
    """``product(a, b, out)``: of matrices that were multiplied before, else ``NotImplemented``.

    ``add(a, b, number, run, alone)`` has it take products like a @ b, ``forget()`` none. All None
    where Python looks up every product.
    """

    __slots__ = ("add", "forget", "product")

    def __init__(self) -> None:
        self.product: Callable[[Any, Any, Any], Any] | None = None
        self.add: Callable[[NDArray, NDArray, int, Way | None, Alone | None], None] | None = None
        self.forget: Callable[[], None] | None = None


at_once = _AtOnce()


def is_known(plan: Plan | None, a: NDArray, b: NDArray) -> bool:
    """Whether the product of a and b is remembered as one of this plan."""
    key = key_of(a, b)
    known = KNOWN.get(hash(key))
    return (
        known is not None and known.plan is plan and known.key == key
        and known.a is a.dtype and known.b is b.dtype
    )  # fmt: skip


def keep(
    plan: Plan | None, a: NDArray, b: NDArray, run: Way | None, alone: Alone | None = None
) -> None:
    """Remember how the product of a and b was multiplied; see `Known`.

    ``alone``: how generated code does what ``run`` does, if it can.
    """
    if is_known(plan, a, b):  # and options were named all the same
        return
    if len(KNOWN) >= MOST_KNOWN:
        forget()
    key, number = key_of(a, b), 0
    if plan is not None and (run is None or alone is not None):
        number = numpys.number(plan, alone)
    if at_once.add is not None:
        at_once.add(a, b, number, run, alone)
    KNOWN[hash(key)] = Known(plan, number, a.dtype, b.dtype, run, key)


def forget() -> None:
    """Forget all products."""
    KNOWN.clear()
    numpys.forget()
    if at_once.forget is not None:
        at_once.forget()


def known_first(product: Callable[P, R]) -> Callable[P, R]:
    """``product(a, b, out)`` that begins with the short ways; faults are left for it to explain."""

    @wraps(product)
    def matmul(a: Any, b: Any, /, out: Any = None, **options: Any) -> Any:
        # The type first: torch.compile follows this, and cannot follow a built-in function.
        if not options and type(a) is _ndarray:
            handed_over = at_once.product
            if handed_over is not None:
                try:
                    result = handed_over(a, b, out)
                    if result is not NotImplemented:
                        return result
                except (TypeError, ValueError):  # an out that does not fit
                    return cast("Any", product)(a, b, out)
            if type(b) is _ndarray:
                if a.nbytes <= TINY and b.nbytes <= TINY and a.dtype is not _float16:
                    try:
                        if len(b) > 1 or a.nbytes * b.nbytes < OUTER:
                            return _matmul(a, b, out)
                    except (TypeError, ValueError):
                        pass
                key = a.shape, b.shape, a.strides, b.strides
                known = KNOWN.get(hash(key))
                if (
                    known is not None and known.a is a.dtype and known.b is b.dtype
                    and known.key == key and (out is None or type(out) is _ndarray)
                ):  # fmt: skip
                    if known.run is not None:
                        result = known.run(a, b, out)
                        if result is not None:
                            return result
                    else:
                        try:
                            result = _matmul(a, b, out)
                        except (TypeError, ValueError):
                            return cast("Any", product)(a, b, out)
                        if known.number:
                            numpys.count(known.number)
                        return result
        return cast("Any", product)(a, b, out, **options)

    return cast("Callable[P, R]", matmul)
