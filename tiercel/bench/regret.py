"""How good the planner's choices are: against the best candidate, and against the vendor's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.table import Table

from tiercel.planner.winners import Measured

#: Choices that are not a scheme with fewer multiplications.
CLASSICAL = ("vendor", "classical")

#: What the figures of one list have in common.
Kind = tuple[str, bool, int]


def by_kind(measured: Sequence[Measured]) -> dict[Kind, list[Measured]]:
    """Lists of one (dtype, static B, threads) each."""
    found: dict[Kind, list[Measured]] = {}
    for m in measured:
        found.setdefault((m.dtype, m.static_b, m.threads), []).append(m)
    return found


@dataclass(frozen=True)
class Regret:
    """Ratios of measured times over a list of products.

    ``mean``, ``p95``, ``worst``: time of the choice over that of the best candidate.
    ``against_vendor``: the worst time of a choice over the vendor's, which is NumPy's or torch's.
    ``gain``: mean gain of the choices over it, over all products; ``scheme_gain``: over the
    ``schemes`` products for which a scheme with fewer multiplications was chosen. ``tuned_gain``:
    of the best candidates, over all. ``error``: median of |predicted / measured − 1| over all
    candidates.
    """

    count: int
    mean: float
    p95: float
    worst: float
    against_vendor: float
    gain: float
    schemes: int
    scheme_gain: float
    tuned_gain: float
    error: float

    def __str__(self) -> str:
        return (
            f"{self.count} products: regret mean {self.mean:.3f}, 95th percentile {self.p95:.3f}, "
            f"worst {self.worst:.3f}\n"
            f"against the vendor's: {self.gain:+.1%} over all, {self.scheme_gain:+.1%} over the "
            f"{self.schemes} where a scheme was chosen, worst time {self.against_vendor:.3f} of "
            f"its; the best candidates {self.tuned_gain:+.1%}\n"
            f"median error of a predicted time: {self.error:.1%}"
        )


def regret(measured: Sequence[Measured]) -> Regret:
    """The figures of at least one measured product."""
    ratios = np.array([m.regret for m in measured])
    gains = np.array([1 / m.against_vendor - 1 for m in measured])
    schemes = np.array([m.planned not in CLASSICAL for m in measured])
    best = np.array([m.seconds["vendor"] / m.seconds[m.best] - 1 for m in measured])
    errors = [abs(m.predicted[x] / m.seconds[x] - 1) for m in measured for x in m.seconds]
    return Regret(
        count=len(measured),
        mean=float(ratios.mean()),
        p95=float(np.percentile(ratios, 95)),
        worst=float(ratios.max()),
        against_vendor=max(m.against_vendor for m in measured),
        gain=float(gains.mean()),
        schemes=int(schemes.sum()),
        scheme_gain=float(gains[schemes].mean()) if schemes.any() else 0.0,
        tuned_gain=float(best.mean()),
        error=float(np.median(errors)),
    )


def table(measured: Sequence[Measured]) -> Table:
    """One row per product: times in ms of the vendor's, of the choice and of the best candidate."""
    made = Table(box=None, padding=(0, 1))
    made.add_column("M×N×K", no_wrap=True)
    for name in ("vendor", "choice", "", "best", "", "regret", "gain"):
        made.add_column(name, justify="right" if name else "left", no_wrap=bool(name))
    for m in sorted(measured, key=lambda m: m.flops):
        right = m.best == m.planned
        made.add_row(
            f"{m.M}×{m.N}×{m.K}", *_cells(m, "vendor")[:1],
            *_cells(m, m.planned), *(("", "") if right else _cells(m, m.best)),
            f"{m.regret:.3f}", f"{1 / m.against_vendor - 1:+.1%}",
        )  # fmt: skip
    return made


def _cells(m: Measured, name: str) -> tuple[str, str]:
    """Milliseconds, and whose."""
    return f"{m.seconds[name] * 1e3:.2f}", name
