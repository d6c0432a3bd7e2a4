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

#: Picoseconds for an element of the product that a scheme's time grows by: with any epilogue, and
#: for each reduction of rows. From 24 products of Llama-3 8B and 70B with 2048 and 8192 rows on an
#: H200: the choice is the faster kernel in all but one, where they are 0.2 % apart; in another run
#: in all but two, 0.7 and 1.0 % apart. Log-sum-exp since the classical kernel keeps pace: 8192 ×
#: 128256 × 4096 1.148 / 1.112, by the scheme 1.146 / 1.083, 2048 × 128256 × 8192 1.072 / 1.054 and
#: 1.109 / 1.108, 8192 × 128256 × 8192 1.046 / 1.046 and 1.159 / 1.132.
ANY = 0.3
REDUCED = {"sum": 1.1, "logsumexp": 0.38}


def gains(plan: GpuPlan, machine: GpuMachine, reductions: Iterable[str] = ()) -> bool:
    """Whether the scheme that ``plan`` chose for the product alone is also faster with an epilogue.

    ``machine``: that the plan is for. ``reductions``: kinds of the epilogue's reductions of rows
    (``Partial.kind`` of ``lower.epilogue``).

    >>> from tiercel.planner.gpu import make_plan, required
    >>> from tiercel.planner.problem import Problem
    >>> machine = required("NVIDIA H200")
    >>> stream = Problem(8192, 8192, 8192, "bfloat16", scheme="winograd", static_b=True)
    >>> plan = make_plan(stream, machine)
    >>> gains(plan, machine), gains(plan, machine, ["sum"])
    (True, False)
    """
    problem = plan.problem
    classical = cost.plain_seconds(problem, machine)
    each = ANY + sum(REDUCED.get(kind, 0.0) for kind in reductions)
    shown = 1e-12 * problem.M * problem.N * each
    return (plan.chosen.seconds + shown) * MARGIN["fused"] < classical
