"""Planned products with default options: what the second call of a kind needs not find out again.

See ``tiercel/shortcut.py``. Checked at each call is what its key does not hold: ``out``, alignment,
overlap, and the number of threads.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tiercel.counters import numpys, record
from tiercel.frontends.numpy.product import Request, is_vendor, run_instead, warn_as_numpy
from tiercel.options import DEFAULT
from tiercel.planner.plan import Plan
from tiercel.runtime import execute
from tiercel.shortcut import Way, at_once, is_known, keep
from tiercel.targets.cpu.params import DONE, UNLIKE
from tiercel.targets.cpu.shortcut.address import address
from tiercel.targets.cpu.shortcut.handover import handover
from tiercel.targets.cpu.threads import allowed

if TYPE_CHECKING:
    from tiercel.targets.cpu.shortcut.alone import Alone
    from tiercel.targets.cpu.shortcut.repeat import Repeat


def remember(plan: Plan, a: NDArray, b: NDArray, c: NDArray, request: Request) -> None:
    """Let later calls like ``c = a @ b`` begin with its plan, where nothing was asked for.

    16-bit products of NumPy are not NumPy's to repeat: it would multiply them one by one.
    """
    plain = request.options is DEFAULT and request.bias is None and request.packed is None
    if not plain or (is_vendor(plan) and a.dtype.itemsize == 2) or is_known(plan, a, b):
        return
    _hand_over()
    keep(plan, a, b, *_way(plan, a, b, c, request))


def _hand_over() -> None:
    """From now on known products are handed over by a built-in function."""
    if at_once.product is None:
        found = handover(numpys.address)
        if found is not None:
            at_once.add, at_once.forget, at_once.product = found.add, found.forget, found.call


def _way(
    plan: Plan, a: NDArray, b: NDArray, c: NDArray, request: Request
) -> tuple[Way | None, Alone | None]:
    recipe = plan.chosen.recipe
    if recipe is None:
        return None, None
    from tiercel.targets.cpu.shortcut.alone import alone
    from tiercel.targets.cpu.shortcut.repeat import (  # not for NumPy's products: 10 ms
        Repeat,
        repeatable,
    )

    if plan.chosen.fringe == 0 and repeatable(recipe):
        repeat = Repeat(recipe, a, b, c)
        quick = alone(repeat) if c.flags.c_contiguous else None
        return _at_once(plan, repeat, c, request), quick
    return _again(plan, a, b, c, request), None


def _at_once(plan: Plan, repeat: Repeat, c: NDArray, request: Request) -> Way:
    shape, strides, dtype, threads = c.shape, c.strides, c.dtype, plan.problem.threads
    contiguous = c.flags.c_contiguous
    saved = plan.chosen.recipe.multiplications_saved if plan.chosen.recipe else 0

    def again(a: NDArray, b: NDArray, out: NDArray | None) -> NDArray | None:
        if allowed() != threads:
            return None
        if out is None:
            if not contiguous:
                return None
            out = np.empty(shape, dtype)
        elif not (
            out.strides == strides and out.shape == shape
            and out.dtype == dtype and out.flags.writeable
        ):  # fmt: skip
            return None
        start = perf_counter()
        state = repeat(a, b, out)
        if state == DONE:
            record(plan, perf_counter() - start, saved)
            warn_as_numpy(a, b, out, request)
            return out
        if state == UNLIKE:
            return None
        record(plan, perf_counter() - start, refused=True)
        run_instead(plan, a, b, out, request)
        return out

    return again


def _again(plan: Plan, a: NDArray, b: NDArray, c: NDArray, request: Request) -> Way:
    shape, strides, dtype, threads = c.shape, c.strides, c.dtype, plan.problem.threads
    spans = _span(a), _span(b), _span(c)
    contiguous = c.flags.c_contiguous

    def fits(out: NDArray, at_a: int, at_b: int) -> bool:
        same = out.strides == strides and out.shape == shape and out.dtype == dtype
        if not (same and out.flags.writeable and out.flags.aligned):
            return False
        (low_a, high_a), (low_b, high_b), (low, high) = spans
        at = address(out)
        low, high = at + low, at + high
        beside_a = high <= at_a + low_a or at_a + high_a <= low
        return beside_a and (high <= at_b + low_b or at_b + high_b <= low)

    def again(a: NDArray, b: NDArray, out: NDArray | None) -> NDArray | None:
        at_a, at_b = address(a), address(b)
        if (at_a | at_b) % dtype.alignment or allowed() != threads:
            return None
        if out is not None and not fits(out, at_a, at_b):
            return None
        if out is None and not contiguous:
            return None
        c = np.empty(shape, dtype) if out is None else out
        if execute(plan, a, b, c, None):
            warn_as_numpy(a, b, c, request)
        else:
            run_instead(plan, a, b, c, request)
        return c

    return again


def _span(x: NDArray) -> tuple[int, int]:
    """Bytes from the first element to the lowest address of x, and to behind the highest."""
    steps = [stride * (size - 1) for size, stride in zip(x.shape, x.strides, strict=True)]
    return sum(s for s in steps if s < 0), sum(s for s in steps if s > 0) + x.itemsize
