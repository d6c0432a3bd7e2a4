"""The first stage: fewer products, by walks from the pool's nodes and from fresh starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tiercel.schemes.search.lift import may_lift
from tiercel.schemes.search.node import Node
from tiercel.schemes.search.pool import Pool
from tiercel.schemes.search.symmetry import Partition, expand
from tiercel.schemes.search.walk import walk

#: Flips of one walk: two seconds. Longer walks find no more per flip, shorter ones start too often.
FLIPS = 10_000_000

#: Share of walks that begin afresh although the pool has nodes. A good start shows within 10 M
#: flips: modulo 2 one in four leads to ⟨2,3,5;25⟩, after 5 M on average; 450 M in one pool did not.
FRESH = 0.5

#: The same for symmetric walks, which have one start only.
FRESH_SYMMETRIC = 0.3

#: Flips that a classical part of a start gets: by then eleven of twelve ⟨3,2,4⟩ are at rank 20 and
#: twelve ⟨3,3,4⟩ at 29 to 31.
PART = 2_000_000

#: Flips of a walk that only wants to get away.
WANDERING = 1_000_000


@dataclass(frozen=True)
class Walk:
    """One task of the first stage: where a walk begins and how it moves; see `walk`."""

    node: Node
    symmetric: bool
    target: int
    flips: int
    plus_after: int
    margin: int
    seed: int


@dataclass(frozen=True)
class Walked:
    """What a walk came to: nodes for the pool, and the flips it made."""

    nodes: tuple[Node, ...]
    flips: int


def choose(
    pool: Pool,
    fresh: Callable[[np.random.Generator], Node],
    symmetric: bool,
    target: int,
    rng: np.random.Generator,
) -> Walk:
    """The next walk.

    No single pace of plus transitions suits all sizes: after 1000 flips ⟨3,4,4;38⟩ comes in four of
    four walks of 20 M flips and after 100 000 in one of four, but ⟨3,4,5⟩ gets stuck at 58 instead
    of 51. So each walk draws its own, from 10^3 to 10^5.5, or up to 10^6 on the first descent.
    """
    first = len(pool) == 0 or rng.random() < (FRESH_SYMMETRIC if symmetric else FRESH)
    node = fresh(rng) if first else pool.draw(rng)
    pace = rng.uniform(4, 6) if first else rng.uniform(3, 5.5)
    # From a node of the wanted rank, which has not lifted, a short way to another one.
    arrived = node.rank <= target
    return Walk(
        node=node,
        symmetric=symmetric,
        target=node.rank - 1 if arrived else target,
        flips=WANDERING if arrived else FLIPS,
        plus_after=int(10**pace),
        margin=int(rng.integers(1, 4)),
        seed=int(rng.integers(1, 2**63)),
    )


def run(task: Walk) -> Walked:
    """Walk, and return the node of least rank and, if it has that rank too, the last one."""
    node = task.node
    capacity = node.rank + task.margin + 2
    words = np.zeros((capacity, 3), np.uint64)
    signs = np.ones(capacity, np.int8)
    words[: node.rank], signs[: node.rank] = node.words, node.signs
    flat = words.reshape(-1)
    last, least, best_words, best_signs, flips = walk(
        flat,
        signs,
        node.rank,
        node.ring == "ternary",
        task.symmetric,
        task.flips,
        task.target,
        task.plus_after,
        task.margin,
        np.uint64(task.seed),
    )
    found = [(best_words.reshape(-1, 3)[:least], best_signs[:least])]
    if last == least:
        found.append((words[:last], signs[:last]))
    nodes = tuple(replace(node, words=w.copy(), signs=s.copy()) for w, s in found)
    return Walked(nodes, flips)


def descend(walk: Walk, partition: Partition | None = None) -> Walked:
    """Walk reduction by reduction, so that each can be checked modulo 4 where the ring is mod2.

    A node that is no scheme modulo 4 has no lift, and what a walk reaches from it hardly ever has:
    none of 24 nodes of ⟨3,5,5;59⟩ in a pool made without this check did. So the walk goes back and
    takes another way.

    Returns:
        The least node on a way that lifts, then others of its rank, and the flips made.
    """
    if walk.node.ring == "ternary":
        return run(walk)
    flips = 0
    while True:
        step = replace(walk, target=max(walk.target, walk.node.rank - 1), flips=walk.flips - flips)
        walked = run(replace(step, seed=walk.seed + flips))
        flips += walked.flips
        first = walked.nodes[0]
        goes_on = first.rank < walk.node.rank and _may_lift(first, partition)
        if goes_on:
            walk = replace(walk, node=first)
        if flips >= walk.flips or walk.node.rank <= walk.target:
            others = [] if goes_on else [x for x in walked.nodes if x.rank == walk.node.rank]
            return Walked((walk.node, *(x for x in others if _may_lift(x, partition))), flips)


def descend_part(node: Node, rng: np.random.Generator) -> Node:
    """A node of smaller rank than a classical part's, before it is put beside another."""
    task = Walk(
        node=node,
        symmetric=False,
        target=1,
        flips=PART,
        plus_after=int(10 ** rng.uniform(4, 5.5)),
        margin=2,
        seed=int(rng.integers(1, 2**63)),
    )
    return descend(task).nodes[0]


def wander(node: Node, rng: np.random.Generator) -> Node:
    """Another node of the same rank, or of a smaller one if the way leads there.

    >>> from tiercel.schemes import get
    >>> from tiercel.schemes.search.node import from_scheme, pack
    >>> strassen = pack((2, 2, 2), "ternary", from_scheme(get("strassen")))
    >>> wander(strassen, np.random.default_rng(0)).rank
    7
    """
    task = Walk(
        node=node,
        symmetric=False,
        target=1,
        flips=WANDERING,
        plus_after=int(10 ** rng.uniform(3, 5)),
        margin=int(rng.integers(1, 3)),
        seed=int(rng.integers(1, 2**63)),
    )
    return run(task).nodes[-1]


def _may_lift(node: Node, partition: Partition | None) -> bool:
    return may_lift(node if partition is None else expand(node, partition))
