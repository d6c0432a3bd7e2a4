"""``batch_invariant=True``: a row of the result has the same bits whatever the other rows are.

Bits change with the order of summation, and ordinary plans choose that by the number of rows. Here
it is fixed: the own classical kernel, with blocks of K chosen for a fixed number of rows. Tiles at
the edge compute as whole ones do, each element is one thread's, so no row sees its neighbours.
"""

from __future__ import annotations

from dataclasses import replace

from tiercel.errors import TiercelTypeError
from tiercel.lower.blocking import blocking
from tiercel.planner.plan import Plan
from tiercel.planner.problem import Problem
from tiercel.runtime import plan_for

#: Rows that block sizes are chosen for.
REFERENCE_ROWS = 1024


def batch_invariant_plan(problem: Problem) -> Plan:
    """The plan of a problem whose M may only change how many rows there are.

    Raises ``TiercelTypeError`` for complex dtypes, whose product has a guard that looks at all
    rows, and for a named scheme.
    """
    if problem.is_complex or problem.scheme not in (None, "classical"):
        what = problem.dtype if problem.is_complex else f"scheme={problem.scheme!r}"
        raise TiercelTypeError(
            f"batch_invariant=True does not work for {what}, which looks at all rows together; "
            "allowed: real floating dtypes and no scheme"
        )
    plan = plan_for(
        replace(
            problem, M=REFERENCE_ROWS, layout_a="row", scheme="classical",
            static_b=False, workspace=None, must_use=True,
        )
    )  # fmt: skip
    recipe = plan.chosen.recipe
    assert recipe is not None, "a named scheme has a kernel"
    tile, by_row = plan.machine.tiles[recipe.compute], problem.layout_b == "row"
    target = recipe.blocking.target  # the same target gives the same blocks of K for any M
    block = blocking(
        problem.M, problem.N, problem.K, recipe.program, tile, target, by_row=by_row
    )  # fmt: skip
    chosen = replace(plan.chosen, recipe=replace(recipe, M=problem.M, blocking=block))
    return replace(plan, problem=replace(plan.problem, M=problem.M), chosen=chosen)
