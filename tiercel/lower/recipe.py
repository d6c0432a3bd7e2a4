"""What a compiled CPU kernel must be told: the meeting point of planner and target."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tiercel.lower.blocking import Blocking
from tiercel.lower.program import Program


@dataclass(frozen=True)
class Guard:
    """Limits of the run-time check that a scheme is safe for the data at hand.

    ``limit``: largest allowed product of the two operands' scale ratios (largest : smallest 1-norm
    of a row or column within a block); ``headroom``: largest allowed size of an intermediate.
    """

    limit: float
    headroom: float


@dataclass(frozen=True)
class Recipe:
    """One 2-D product, ready to run: C (M, N) = activation(A (M, K) · B (K, N) + bias).

    ``compute``: "float32" or "float64"; ``storage``: dtype of the real planes of A, B and C
    ("float32" for complex64). ``program`` runs inside the five loops, ``outer`` (None: nothing)
    around them, see ``steps.py``; ``blocking`` is that of one step. ``guard`` is None for the
    classical product. ``swapped``: the product that is wanted is Cᵀ = Bᵀ Aᵀ, of which A, B and C
    (and M and N) are the transposes; there is no bias then.
    """

    M: int
    N: int
    K: int
    program: Program
    blocking: Blocking
    compute: str
    storage: str
    activation: str | None
    threads: int
    guard: Guard | None
    outer: Program | None = None
    swapped: bool = False

    @cached_property
    def multiplications_saved(self) -> int:
        """Real multiplications fewer than the classical product's, edges not counted apart."""
        classical = self.M * self.N * self.K * (4 if self.program.planes == 2 else 1)
        share = self.program.share * (self.outer.share if self.outer else 1.0)
        return round(classical * (1 - share))
