"""The best route for the outputs of a scheme: shipped, from the cache, or searched now."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from importlib.resources import files
from typing import Any

from tiercel import cache as disk
from tiercel.lower.accumulator.anneal import anneal
from tiercel.lower.accumulator.cost import Cost
from tiercel.lower.accumulator.exact import cheapest_route
from tiercel.lower.accumulator.route import Route
from tiercel.lower.accumulator.slots import price
from tiercel.lower.accumulator.sums import Sums
from tiercel.lower.accumulator.text import format_route, parse_route

SEARCH = 1  # part of every cache key: raise it when the search finds better routes
EXACT_PRODUCTS, EXACT_STATES = 7, 10_000  # proves Winograd's optimum in 0.2 s


def best_route(sums: Sums, cost: Cost, *, drafts: int | None = None, seed: int = 0) -> Route:
    """A route of low price for outputs in canonical order (see `canonical`).

    Shipped routes come from the same search with hundreds of times the default effort; they are
    used for the default ``cost`` and compete with a search for any other one.

    Args:
        sums: the outputs.
        cost: prices and register capacity.
        drafts: how many drafts to try; by default as many as take seconds.
        seed: of the random changes. The same arguments give the same route on every machine.
    """
    shipped = _shipped().get(fingerprint(sums)) if drafts is None else None
    known = [] if shipped is None else [parse_route(sums, shipped)]
    if known and cost == Cost():
        return known[0]
    count = default_drafts(sums) if drafts is None else drafts
    key = f"{SEARCH} {fingerprint(sums)} {cost} {count} {seed}"
    text = disk.get(
        "route", key, lambda: format_route(sums, search(sums, cost, count, seed)).encode()
    )
    return min([*known, parse_route(sums, text.decode())], key=lambda x: price(sums, x, cost))


def search(sums: Sums, cost: Cost, drafts: int, seed: int) -> Route:
    """Annealing, and for a small scheme the proven optimum when it is within reach."""
    routes = [anneal(sums, cost, drafts=drafts, seed=seed)]
    if sums.products <= EXACT_PRODUCTS:
        exact = cheapest_route(sums, cost, states=EXACT_STATES)
        routes += [] if exact is None else [exact]
    return min(routes, key=lambda x: price(sums, x, cost))


def default_drafts(sums: Sums) -> int:
    """About 0.5 s for 7 products, 3 s for 23, 6 s for 49; at least 5, which 343 take 1 s for."""
    return max(5, min(2500, 4_000_000 // sums.products**2))


def fingerprint(sums: Sums) -> str:
    """Identifies the outputs as sums of products, in their order."""
    content = [sorted((r, str(x)) for r, x in weights.items()) for weights in sums.weights]
    return hashlib.sha256(json.dumps([sums.products, content]).encode()).hexdigest()[:24]


def shipped_names() -> tuple[str, ...]:
    """Catalogue schemes whose route is part of the package.

    >>> "winograd" in shipped_names()
    True
    """
    return tuple(sorted(name for entry in _entries() for name in entry["names"]))


def _shipped() -> dict[str, str]:
    return {entry["outputs"]: entry["route"] for entry in _entries()}


@cache
def _entries() -> list[dict[str, Any]]:
    text = files("tiercel.lower.accumulator").joinpath("routes.json").read_text(encoding="utf-8")
    return json.loads(text)
