"""One round's unit of work, as a worker process receives and returns it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tiercel.schemes.scheme import Scheme
from tiercel.schemes.search.descend import Walk, run
from tiercel.schemes.search.lift import lift, may_lift
from tiercel.schemes.search.node import Node, to_scheme, unpack
from tiercel.schemes.search.polish import LARGEST, Polish, Polished, polish
from tiercel.schemes.search.symmetry import Partition, expand


@dataclass(frozen=True)
class Descent:
    """A walk, and what is of interest: nodes of at most `lift_from` rows are taken to the integers.

    Modulo 2 the walk is checked at every reduction. A node that is no scheme modulo 4 has no lift,
    and what a walk reaches from it hardly ever has: none of 24 nodes of ⟨3,5,5;59⟩ in a pool made
    without this check did. So the walk goes back and takes another way.
    """

    walk: Walk
    partition: Partition | None
    lift_from: int


@dataclass(frozen=True)
class Descended:
    """Nodes for the pool, schemes over the integers or rationals, flips made."""

    nodes: tuple[Node, ...]
    schemes: tuple[Scheme, ...]
    flips: int


Task = Descent | Polish
Result = Descended | Polished


def work(task: Task) -> Result:
    """Do a task."""
    if isinstance(task, Polish):
        return polish(task)
    nodes, flips = _descend(task)
    found = [_over_the_integers(node, task) for node in nodes if node.rank <= task.lift_from]
    return Descended(tuple(nodes), tuple(x for x in found if x is not None), flips)


def _descend(task: Descent) -> tuple[list[Node], int]:
    """Reduction by reduction: the least node on a way that lifts, others of its rank, flips."""
    walk, flips = task.walk, 0
    if walk.node.ring == "ternary":
        walked = run(walk)
        return list(walked.nodes), walked.flips
    while True:
        step = replace(walk, target=max(walk.target, walk.node.rank - 1), flips=walk.flips - flips)
        walked = run(replace(step, seed=walk.seed + flips))
        flips += walked.flips
        first = walked.nodes[0]
        goes_on = first.rank < walk.node.rank and _may_lift(first, task)
        if goes_on:
            walk = replace(walk, node=first)
        if flips >= walk.flips or walk.node.rank <= walk.target:
            others = [] if goes_on else [x for x in walked.nodes if x.rank == walk.node.rank]
            return [walk.node, *(x for x in others if _may_lift(x, task))], flips


def _may_lift(node: Node, task: Descent) -> bool:
    return may_lift(node if task.partition is None else expand(node, task.partition))


def _over_the_integers(node: Node, task: Descent) -> Scheme | None:
    if node.ring == "ternary":
        return to_scheme(node.grid, unpack(node))
    plain = node if task.partition is None else expand(node, task.partition)
    scheme = lift(plain, task.walk.seed)
    return scheme if scheme is not None and _is_handy(scheme) else None


def _is_handy(scheme: Scheme) -> bool:
    """Whether the second stage can work with the coefficients: dyadic and not large."""
    matrices = scheme.U, scheme.V, scheme.W
    return all(
        x.denominator & (x.denominator - 1) == 0
        and np.abs(x.numerators).max() <= LARGEST * x.denominator
        for x in matrices
    )
