"""``verify=True``: probe each product, and step down to fewer levels where it is not good enough.

What a kind of call stepped down to is where its next verified call begins.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tiercel.errors import TiercelRuntimeError
from tiercel.frontends.numpy.probe import agrees
from tiercel.options import Options
from tiercel.planner.accuracy import bound
from tiercel.planner.plan import Plan
from tiercel.planner.problem import Problem
from tiercel.targets.vendor import apply_epilogue

if TYPE_CHECKING:
    from collections.abc import Callable

    from tiercel.frontends.numpy.product import Request

log = logging.getLogger("tiercel")

#: Kinds of calls kept; the oldest is forgotten first.
MOST_KINDS = 4096

_stepped_down: dict[Problem, str] = {}


def remembered(plan: Plan) -> Plan:
    """The plan, from the algorithm on that calls of this kind have stepped down to."""
    algorithm = _stepped_down.get(plan.problem)
    return plan if algorithm is None else plan.choosing(algorithm)


def next_plan(plan: Plan, a: NDArray, b: NDArray, out: NDArray, request: Request) -> Plan | None:
    """None if ``out``, which ``plan`` has computed, passes the probe; else the plan to run next.

    Raises ``TiercelRuntimeError`` where the caller named the scheme.
    """
    growth = bound(plan.problem.accuracy)
    if agrees(a, b, out, request.bias, growth):
        return None
    algorithm, scheme = plan.chosen.algorithm, request.options.scheme
    if scheme is not None:
        raise TiercelRuntimeError(
            f"scheme={scheme!r}: the product failed its verification: errors are larger than "
            f"accuracy={plan.problem.accuracy!r} allows; leave scheme=None to let such calls run "
            "a more accurate algorithm, or allow larger errors"
        )
    safer = plan.one_level_down()
    log.warning(
        "verify: %s exceeds accuracy=%r; this and further such calls run %s (%s)",
        algorithm, plan.problem.accuracy, safer.chosen.algorithm, plan.problem,
    )  # fmt: skip
    if len(_stepped_down) >= MOST_KINDS:
        del _stepped_down[next(iter(_stepped_down))]
    _stepped_down[plan.problem] = safer.chosen.algorithm
    return safer


def forget() -> None:
    """Let every kind of call begin with its plan's choice again."""
    _stepped_down.clear()


def needs_bare_product(options: Options, dtype: np.dtype) -> bool:
    """Whether what a call returns cannot be probed: it is mapped, or rounded to 16 bits."""
    return options.verify and (options.epilogue is not None or dtype.itemsize == 2)


def bare_then_mapped(
    matmul: Callable[..., Any], a: NDArray, b: Any, bias: NDArray | None, options: Options
) -> NDArray:
    """``epilogue(a @ b + bias)`` with the epilogue, and the rounding to 16 bits, after the probe.

    16-bit operands are multiplied in float32, and a packed b in its plain form.
    """
    wide = np.dtype(np.float32) if a.dtype.itemsize == 2 else a.dtype
    operands = (x.astype(wide, copy=False) for x in (a, b))
    vector = None if bias is None else bias.astype(wide, copy=False)
    product = matmul(*operands, None, vector, options.with_epilogue(None))
    apply_epilogue(product, options.epilogue, None)
    return product.astype(a.dtype, copy=False)
