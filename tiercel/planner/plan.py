"""A plan: what was chosen, every candidate that was not, and why."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from tiercel.lower.recipe import Recipe
from tiercel.planner.describe import table
from tiercel.planner.machine import Machine
from tiercel.planner.problem import Problem
from tiercel.planner.running import run


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


#: A level less halves the growth, so that what failed is worth trying again at this share of it.
MILDER = 0.7


@dataclass(frozen=True)
class Plan:
    """The decision for one problem on one machine. ``str()`` is a table; a call runs the choice."""

    problem: Problem
    machine: Machine
    candidates: tuple[Candidate, ...]
    chosen: Candidate

    def __call__(self, a: Any, b: Any, /, out: Any = None, *, bias: Any = None) -> Any:
        """``epilogue(a @ b + bias)`` by what was chosen, never by anything else.

        a (M, K) and b (K, N) of the plan's dtype, arrays or tensors where the plan is for; b may be
        packed. Options are the plan's own. Raises ``TiercelValueError`` or ``TiercelTypeError`` for
        other operands, and what `matmul` raises for a scheme by name.

        >>> import numpy as np, tiercel
        >>> plan = tiercel.plan(2, 2, 2, scheme="classical", threads=1)
        >>> plan(np.eye(2, dtype="f4"), np.full((2, 2), 3, "f4")).tolist()
        [[3.0, 3.0], [3.0, 3.0]]
        """
        return run(self, a, b, out, bias)

    def classical(self) -> Plan:
        """The plan for data that a scheme's guard refused: the best classical candidate."""
        safe = [c for c in self.candidates if c.algorithm in ("vendor", "classical")]
        safe = [c for c in safe if c.growth == 1.0]  # a complex "classical" is Gauss's product
        safe = [c for c in safe if not c.rejected.startswith(("needs", "no kernel"))]
        best = min(safe, key=lambda c: c.seconds)
        return replace(self, chosen=best)

    def one_level_down(self) -> Plan:
        """The plan with the next clearly more accurate candidate: fewer levels, then classical."""
        now = self.chosen.growth
        allowed = [c for c in self.candidates if not c.rejected and c.recipe is not None]
        milder = [c for c in allowed if c.growth < now and c.growth <= max(1.0, MILDER * now)]
        best = max(milder, key=lambda c: (c.growth, -c.seconds), default=self.vendor)
        return replace(self, chosen=best)

    @property
    def vendor(self) -> Candidate:
        """NumPy's product, which every plan has among its candidates."""
        return next(c for c in self.candidates if c.algorithm == "vendor")

    @property
    def place(self) -> str:
        """What runs the product, for a table's head."""
        return f"{self.problem.threads} thread{'s' if self.problem.threads > 1 else ''}"

    def choosing(self, algorithm: str) -> Plan:
        """The same plan with the candidate of that name as its choice.

        Raises ``KeyError`` for a name that is not among the candidates.
        """
        return replace(self, chosen={c.algorithm: c for c in self.candidates}[algorithm])

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
        return table(self)


def _milliseconds(candidate: Candidate) -> float | None:
    """Predicted time; JSON has no infinity for what cannot run at all."""
    return candidate.seconds * 1e3 if math.isfinite(candidate.seconds) else None
