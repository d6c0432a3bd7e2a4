"""A plan for people: the table of its candidates, and the listing of what its choice computes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tiercel.lower.recipe import Recipe

if TYPE_CHECKING:
    from tiercel.planner.plan import Candidate, Plan

LEFT = ("", "algorithm", "note")  # columns of text; the others hold numbers


def table(plan: Plan, measured: Mapping[str, float] | None = None) -> str:
    """One row per candidate, fastest first; ``measured``: seconds by algorithm, where known.

    Rates are effective: 2·M·N·K over the measured time, or else the predicted one. "–": not known,
    where nothing can run or nothing was measured.
    """
    measured = measured or {}
    rows = [_row(plan, c, measured) for c in sorted(plan.candidates, key=lambda c: c.seconds)]
    titles = [title for title in rows[0] if measured or title != "meas. ms"]
    cells = [titles, *([row[title] for title in titles] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(
            text.ljust(width) if title in LEFT else text.rjust(width)
            for title, text, width in zip(titles, row, widths, strict=True)
        ).rstrip()
        for row in cells
    ]
    return "\n".join([_head(plan), *lines])


def listing(plan: Plan) -> str:
    """What the chosen algorithm computes: its products and sums, outermost level first."""
    recipe = plan.chosen.recipe
    if recipe is None:
        return "vendor: np.matmul, by the BLAS that NumPy was built with"
    if not isinstance(recipe, Recipe):
        rows = plan.chosen.fringe
        return f"{recipe}\nthe last {rows} rows by the vendor's library" if rows else str(recipe)
    b = recipe.blocking
    head = f"sub-blocks of {b.mc} × {b.kc} of A and {b.kc} × {b.nc} of B, K in passes of {b.k_span}"
    parts = [head, f"inside the five loops, {recipe.program}"]
    if recipe.outer is not None:
        parts.insert(0, f"around the five loops, {recipe.outer}")
    if plan.chosen.fringe:
        parts.append(f"the last {plan.chosen.fringe} columns by np.matmul")
    return "\n".join(parts)


def _head(plan: Plan) -> str:
    p = plan.problem
    return (
        f"{p.M} × {p.N} × {p.K} {p.dtype}, A {p.layout_a}, B {p.layout_b}"
        f"{' (packed)' if p.static_b else ''}, {plan.place}, accuracy {p.accuracy}"
    )


def _row(plan: Plan, c: Candidate, measured: Mapping[str, float]) -> dict[str, str]:
    seconds = measured.get(c.algorithm)
    predictable = math.isfinite(c.seconds) and "unavailable" not in plan.machine.notes
    predicted = c.seconds if predictable else None
    rate = plan.problem.flops / (seconds or c.seconds) / 1e9
    known = seconds or predicted
    peak = plan.machine.rates[plan.problem.compute].peak * plan.problem.threads
    return {
        "": "→" if c.algorithm == plan.chosen.algorithm else "",
        "algorithm": c.algorithm,
        "pred. ms": f"{predicted * 1e3:.3f}" if predicted else "–",
        "meas. ms": "" if seconds is None else f"{seconds * 1e3:.3f}",
        "GFLOP/s": f"{rate:.1f}" if known else "–",
        "% peak": f"{100 * rate / peak:.0f}" if known else "–",
        "memory": f"{c.workspace / 2**20:.1f} MiB",
        "error ×": f"{c.growth:.2f}",
        "note": c.rejected,
    }
