"""The plan of a product on a GPU: a ``Plan`` whose candidates know their variant."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tiercel.planner.gpu.machine import GpuMachine
from tiercel.planner.gpu.variants import VENDOR, Variant
from tiercel.planner.plan import Candidate, Plan


@dataclass(frozen=True)
class GpuCandidate(Candidate):
    """One way to run a product on a GPU, priced.

    ``variant`` is also its ``recipe``; ``fringe``: last rows of C that the vendor computes.
    """

    recipe: Variant | None = None  # pyright: ignore[reportIncompatibleVariableOverride]

    @property
    def variant(self) -> Variant:
        return self.recipe or VENDOR


@dataclass(frozen=True)
class GpuPlan(Plan):
    """The decision for one product on one GPU. ``str()`` is a table."""

    machine: GpuMachine  # pyright: ignore[reportIncompatibleVariableOverride]
    candidates: tuple[GpuCandidate, ...]
    chosen: GpuCandidate  # pyright: ignore[reportIncompatibleVariableOverride]

    @property
    def place(self) -> str:
        """The GPU, and where its profile comes from."""
        source = "measured" if self.machine.measured else "shipped profile"
        return f"{self.machine.name} ({source})"

    @cached_property
    def multiplications_saved(self) -> int:
        """Real multiplications fewer than the classical product's, edges not counted apart."""
        variant, p = self.chosen.variant, self.problem
        share = (
            variant.outer().share * variant.inner(p.is_complex).share if variant.schemes else 1.0
        )
        return round(p.M * p.N * p.K * (4 if p.is_complex else 1) * (1 - share))
