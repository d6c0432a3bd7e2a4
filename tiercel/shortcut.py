"""Products like earlier ones: the next call of the same kind finds its way at once.

A large product empties the caches, and then every object that Python touches has to be fetched: the
way through the front end and the plans' cache takes 5 µs warm and 150 µs cold, which is seen on a
call of some milliseconds. So a product with default options is known by the shapes and strides of
its operands. What is not quite like the earlier one takes the long way, which explains errors, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tiercel.planner.plan import Plan

MOST_KNOWN = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """How to multiply arrays of two dtypes, whose shapes and strides are the key.

    ``run(a, b, out)`` returns the result, or None where the long way must be taken; None: the plan
    leaves the product to NumPy, whatever the number of threads. dtypes are compared by identity,
    which is all that an array's own dtype needs; others go the long way.
    """

    plan: Plan
    a: np.dtype
    b: np.dtype
    run: Callable[[NDArray, NDArray, NDArray | None], NDArray | None] | None


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
