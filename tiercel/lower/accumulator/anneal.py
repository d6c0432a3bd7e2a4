"""Simulated annealing over drafts: a cheap route for a scheme of any size, the same for a seed."""

from __future__ import annotations

import math
import random

from tiercel.lower.accumulator.cost import Cost
from tiercel.lower.accumulator.draft import PLACES, Draft, settle
from tiercel.lower.accumulator.route import Route
from tiercel.lower.accumulator.slots import price
from tiercel.lower.accumulator.sums import Sums

# A price counts scratch transfers, so a change by one is accepted often at first, seldom at last.
# Winograd twice, 600 drafts, two seeds: 100 and 116; from 1.0 to 0.15: 112 and 123.
HOT, COLD = 0.7, 0.1


def anneal(sums: Sums, cost: Cost, *, drafts: int, seed: int) -> Route:
    """The route of least price among ``drafts`` changes of a random first draft."""
    rng = random.Random(seed)
    draft = _first(sums, rng)
    best = settle(sums, cost, draft)
    current = least = price(sums, best, cost)
    for step in range(drafts):
        temperature = HOT * (COLD / HOT) ** (step / drafts)
        candidate = _changed(draft, rng)
        route = settle(sums, cost, candidate)
        asked = price(sums, route, cost)
        if asked <= current - temperature * math.log(1.0 - rng.random()):
            draft, current = candidate, asked
            if asked < least:
                best, least = route, asked
    return best


def _first(sums: Sums, rng: random.Random) -> Draft:
    outputs = list(range(sums.outputs))
    rng.shuffle(outputs)
    rank = tuple(rng.random() for _ in range(sums.products))
    return Draft(tuple(outputs), rank, ("chain",) * sums.products, (0.0,) * sums.outputs)


def _changed(draft: Draft, rng: random.Random) -> Draft:
    outputs, place = list(draft.outputs), list(draft.place)
    rank, loads_at = list(draft.rank), list(draft.loads_at)
    for _ in range(1 if rng.random() < 0.7 else 2):
        choice = rng.random()
        if choice < 0.25:
            moved = outputs.pop(rng.randrange(len(outputs)))
            outputs.insert(rng.randrange(len(outputs) + 1), moved)
        elif choice < 0.6:
            rank[rng.randrange(len(rank))] = rng.random()
        elif choice < 0.85:
            place[rng.randrange(len(place))] = rng.choice(PLACES)
        else:
            loads_at[rng.randrange(len(loads_at))] = rng.choice((0.0, rng.random()))
    return Draft(tuple(outputs), tuple(rank), tuple(place), tuple(loads_at))
