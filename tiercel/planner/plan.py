"""A plan: what was chosen, every candidate that was not, and why."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from tiercel.lower.recipe import Recipe
from tiercel.planner.machine import Machine
from tiercel.planner.problem import Problem


@dataclass(frozen=True)
class Candidate:
    """One way to run a problem, priced.

    ``algorithm``: "vendor" (NumPy), "classical" (own kernel) or a scheme's name; ``seconds``:
    predicted; ``workspace``: extra bytes; ``growth``: predicted RMS error over the classical
    product; ``rejected``: why it may not be chosen, empty if it may; ``fringe``: last columns of C
    that NumPy computes, because they do not fill a block.
    """

    algorithm: str
    seconds: float
    workspace: int
    growth: float
    recipe: Recipe | None = None
    rejected: str = ""
    fringe: int = 0


@dataclass(frozen=True)
class Plan:
    """The decision for one problem on one machine. ``str()`` is a table."""

    problem: Problem
    machine: Machine
    candidates: tuple[Candidate, ...]
    chosen: Candidate

    def classical(self) -> Plan:
        """The plan for data that a scheme's guard refused: the best classical candidate."""
        safe = [c for c in self.candidates if c.algorithm in ("vendor", "classical")]
        safe = [c for c in safe if c.growth == 1.0]  # a complex "classical" is Gauss's product
        safe = [c for c in safe if not c.rejected.startswith(("needs", "no kernel"))]
        best = min(safe, key=lambda c: c.seconds)
        return replace(self, chosen=best)

    def to_json(self) -> dict[str, Any]:
        """Plain data: the problem, the choice, and all candidates (``None`` ms: no kernel)."""
        p = self.problem
        return {
            "M": p.M,
            "N": p.N,
            "K": p.K,
            "dtype": p.dtype,
            "threads": p.threads,
            "algorithm": self.chosen.algorithm,
            "predicted_ms": _milliseconds(self.chosen),
            "workspace": self.chosen.workspace,
            "error_growth": self.chosen.growth,
            "candidates": [
                {
                    "algorithm": c.algorithm,
                    "predicted_ms": _milliseconds(c),
                    "workspace": c.workspace,
                    "error_growth": c.growth,
                    "rejected": c.rejected,
                }
                for c in self.candidates
            ],
        }

    def __str__(self) -> str:
        p, peak = self.problem, self.machine.rates[self.problem.compute].peak
        head = (
            f"{p.M} × {p.N} × {p.K} {p.dtype}, A {p.layout_a}, B {p.layout_b}"
            f"{' (packed)' if p.static_b else ''}, {p.threads} "
            f"thread{'s' if p.threads > 1 else ''}, accuracy {p.accuracy}"
        )
        rows = [("", "algorithm", "pred. ms", "GFLOP/s", "% peak", "memory", "error ×", "note")]
        for c in sorted(self.candidates, key=lambda c: c.seconds):
            rate = p.flops / c.seconds / 1e9
            rows.append(
                (
                    "→" if c.algorithm == self.chosen.algorithm else "",
                    c.algorithm,
                    f"{c.seconds * 1e3:.3f}",
                    f"{rate:.1f}",
                    f"{100 * rate / (peak * p.threads):.0f}",
                    f"{c.workspace / 2**20:.1f} MiB",
                    f"{c.growth:.2f}",
                    c.rejected,
                )
            )
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = [
            "  ".join(
                cell.ljust(w) if i in (0, 1, 7) else cell.rjust(w)
                for i, (cell, w) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        return "\n".join([head, *lines])


def _milliseconds(candidate: Candidate) -> float | None:
    """Predicted time; JSON has no infinity for what cannot run at all."""
    return candidate.seconds * 1e3 if math.isfinite(candidate.seconds) else None
