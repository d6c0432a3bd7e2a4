"""One round's unit of work, as a worker process receives and returns it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tiercel.schemes.scheme import Scheme
from tiercel.schemes.search.descend import Walk, descend
from tiercel.schemes.search.lift import lift
from tiercel.schemes.search.node import Node, to_scheme, unpack
from tiercel.schemes.search.polish import LARGEST, Polish, Polished, polish
from tiercel.schemes.search.symmetry import Partition, expand


@dataclass(frozen=True)
class Descent:
    """A walk; nodes of at most `lift_from` rows that it comes to are taken to the integers."""

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
    walked = descend(task.walk, task.partition)
    wanted = [node for node in walked.nodes if node.rank <= task.lift_from]
    found = [_over_the_integers(node, task) for node in wanted]
    return Descended(walked.nodes, tuple(x for x in found if x is not None), walked.flips)


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
