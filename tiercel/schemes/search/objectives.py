"""What the second stage may minimise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tiercel.errors import TiercelValueError
from tiercel.schemes.accuracy import phi, stability_factor
from tiercel.schemes.additions import reduced_additions
from tiercel.schemes.scheme import Scheme


@dataclass(frozen=True)
class Objective:
    """A figure to make small at fixed rank.

    Args:
        name: what the user calls it.
        value: the figure itself, of a finished scheme; ties are broken by the second number.
        weights: of Φ, non-zeros, traffic and E in the cost that is annealed. Φ and E get a small
            share of the non-zeros, and the counts a small share of Φ: among equals the scheme that
            is also good otherwise.
        finest: smallest fraction that coefficients may have. Additions and traffic gain nothing
            from fractions, which cost a multiplication.
        heat: first temperature over the cost of one product.
    """

    name: str
    value: Callable[[Scheme], tuple[float, float]]
    weights: tuple[float, float, float, float]
    finest: float
    heat: float


def traffic(scheme: Scheme) -> int:
    """Blocks moved beside the products' own, when outputs are summed in the accumulator.

    A sum of t > 1 blocks of A or B is written once and read t times. A product that enters t > 1
    blocks of C is saved once and loaded t - 1 times; one of them, or the only one, gets it from the
    accumulator.

    >>> from tiercel.schemes import get
    >>> traffic(get("strassen")), traffic(get("winograd"))
    (40, 41)
    """
    moved = 0
    for matrix, extra in ((scheme.U, 1), (scheme.V, 1), (scheme.W, 0)):
        terms = np.count_nonzero(matrix.numerators, axis=1)
        moved += int((terms[terms > 1] + extra).sum())
    return moved


def _nonzeros(scheme: Scheme) -> int:
    return sum(scheme.nonzeros)


OBJECTIVES = {
    x.name: x
    for x in (
        Objective("accuracy", lambda s: (float(phi(s)), _nonzeros(s)), (1, 0.02, 0, 0), 1 / 8, 1),
        Objective(
            "worst-case",
            lambda s: (float(stability_factor(s)), float(phi(s))),
            (0, 0.01, 0, 1),
            1,
            0.3,
        ),
        Objective("nonzeros", lambda s: (_nonzeros(s), float(phi(s))), (0.005, 1, 0, 0), 1, 0.5),
        Objective(
            "additions", lambda s: (reduced_additions(s), float(phi(s))), (0.005, 1, 0, 0), 1, 0.5
        ),
        Objective("traffic", lambda s: (traffic(s), float(phi(s))), (0.005, 0, 1, 0), 1, 0.5),
    )
}


def objective(name: str) -> Objective:
    """The objective of this name.

    Raises:
        TiercelValueError: no such objective.
    """
    if name not in OBJECTIVES:
        raise TiercelValueError(f"objective must be one of {', '.join(OBJECTIVES)}: got {name!r}")
    return OBJECTIVES[name]
