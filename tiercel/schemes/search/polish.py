"""The second stage: better schemes of the same rank, by ternary walks and annealing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tiercel.schemes.scheme import Scheme
from tiercel.schemes.search.anneal import anneal
from tiercel.schemes.search.descend import wander
from tiercel.schemes.search.node import from_scheme, pack, to_scheme, unpack
from tiercel.schemes.search.objectives import Objective, objective
from tiercel.schemes.search.starts import fits
from tiercel.schemes.transform import normalise

#: Moves of one annealing: a second for ⟨4,4,4⟩.
STEPS = 2_000_000

#: Largest coefficient that annealing allows.
LARGEST = 4.0


@dataclass(frozen=True)
class Polish:
    """One task of the second stage: wander off from a scheme, then minimise the objective."""

    scheme: Scheme
    objective: str
    wander: bool
    seed: int


@dataclass(frozen=True)
class Polished:
    """The annealed scheme, and the ternary scheme that the walk before it ended at."""

    scheme: Scheme
    wandered: Scheme


def polish(task: Polish) -> Polished:
    """Wander in the ternary flip graph if the coefficients allow it, then anneal.

    Annealing alone stays near the scheme that it is given.
    """
    rng = np.random.default_rng(task.seed)
    scheme = _wander(task.scheme, rng) if task.wander else task.scheme
    aim = objective(task.objective)
    return Polished(minimise(scheme, aim, int(rng.integers(1, 2**63))), scheme)


def minimise(scheme: Scheme, aim: Objective, seed: int, steps: int = STEPS) -> Scheme:
    """The best scheme of the same rank that one annealing comes to; `scheme` if none is better.

    Args:
        scheme: with dyadic coefficients; others are returned as they are.
        aim: what to minimise.
        seed: of the moves, positive.
        steps: moves to try.
    """
    matrices = scheme.U, scheme.V, scheme.W
    finest = min(aim.finest, *(1 / x.denominator for x in matrices))
    if any(x.denominator & (x.denominator - 1) for x in matrices):
        return scheme
    factors = tuple(np.ascontiguousarray(x.floats()) for x in matrices)
    weights = np.array(aim.weights, np.float64)
    typical = aim.value(scheme)[0] / scheme.rank
    hot = aim.heat * max(1.0, typical)
    _, found = anneal(
        factors,
        scheme.grid,
        weights,
        finest,
        max(LARGEST, *(float(np.abs(x).max()) for x in factors)),
        steps,
        hot,
        hot / 50,
        np.uint64(seed),
    )
    annealed = normalise(Scheme(*scheme.grid, *found, provenance=scheme.provenance), "power-of-two")
    return annealed if aim.value(annealed) < aim.value(scheme) else scheme


def _wander(scheme: Scheme, rng: np.random.Generator) -> Scheme:
    if not fits(scheme, "ternary"):
        return scheme
    node = wander(pack(scheme.grid, "ternary", from_scheme(scheme)), rng)
    return to_scheme(scheme.grid, unpack(node), scheme.provenance)
