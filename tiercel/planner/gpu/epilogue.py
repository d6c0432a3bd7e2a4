"""A product with an epilogue on a GPU: by a scheme's kernel, or by the classical one?

Both compute the epilogue inside, so that the time of the products decides, and what of an epilogue
a scheme cannot hide behind products that are parts of K long.
"""

from __future__ import annotations

from collections.abc import Iterable

from tiercel.planner.gpu import cost
from tiercel.planner.gpu.choose import MARGIN
from tiercel.planner.gpu.machine import GpuMachine
from tiercel.planner.gpu.plan import GpuPlan

#: Reduction of rows → picoseconds for an element of the product that it adds to a scheme's time:
#: from cross-entropy of 8192 × 128256 × 4096 and × 8192 on an H200, 2.9 and 2.7.
SHOWN = {"logsumexp": 2.8}


def gains(plan: GpuPlan, machine: GpuMachine, reductions: Iterable[str] = ()) -> bool:
    """Whether the scheme that ``plan`` chose for the product alone is also faster with an epilogue.

    ``machine``: that the plan is for. ``reductions``: kinds of the epilogue's reductions of rows
    (``Partial.kind`` of ``lower.epilogue``).

    >>> from tiercel.planner.gpu import make_plan, required
    >>> from tiercel.planner.problem import Problem
    >>> machine = required("NVIDIA H200")
    >>> logits = Problem(8192, 128256, 4096, "bfloat16", scheme="winograd", static_b=True)
    >>> plan = make_plan(logits, machine)
    >>> gains(plan, machine), gains(plan, machine, ["logsumexp"])
    (True, False)
    """
    problem = plan.problem
    classical = cost.plain_seconds(problem, machine)
    shown = 1e-12 * problem.M * problem.N * sum(SHOWN.get(kind, 0.0) for kind in reductions)
    return (plan.chosen.seconds + shown) * MARGIN["fused"] < classical
