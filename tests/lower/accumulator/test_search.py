"""The search: proven optima, determinism, competition, the disk cache."""

from pathlib import Path

import pytest

from tiercel import schemes
from tiercel.errors import TiercelValueError
from tiercel.lower.accumulator import Cost, accumulate
from tiercel.lower.accumulator import search as route_search
from tiercel.lower.accumulator.anneal import anneal
from tiercel.lower.accumulator.compile import canonical
from tiercel.lower.accumulator.exact import cheapest_route
from tiercel.lower.accumulator.route import AddValue, Route, TakeValue
from tiercel.lower.accumulator.slots import price
from tiercel.lower.accumulator.sums import Sums, sums_of


def sums(name: str) -> Sums:
    return sums_of(canonical(schemes.get(name)))


def transfers(route: Route) -> int:
    loads = [move.value for move in route if isinstance(move, (AddValue, TakeValue))]
    return len(loads) + len(set(loads))


def test_winograd_needs_six_transfers():
    route = cheapest_route(sums("winograd"), Cost())
    assert route is not None
    assert transfers(route) == 6


@pytest.mark.slow
def test_strassen_needs_ten_transfers():
    route = cheapest_route(sums("strassen"), Cost(), states=200_000)
    assert route is not None
    assert transfers(route) == 10


def test_exact_search_gives_up_rather_than_guess():
    assert cheapest_route(sums("strassen"), Cost(), states=100) is None


def test_classical_schemes_need_no_transfer():
    outputs = sums_of(canonical(schemes.classical(2, 3, 2)))
    assert transfers(anneal(outputs, Cost(), drafts=0, seed=0)) == 0
    small = cheapest_route(sums_of(canonical(schemes.classical(1, 3, 2))), Cost())
    assert small is not None
    assert transfers(small) == 0


@pytest.mark.parametrize(("name", "known"), [("winograd", 6), ("strassen", 10)])
def test_annealing_finds_the_proven_optimum(name: str, known: int):
    outputs = sums(name)
    route = anneal(outputs, Cost(), drafts=2000, seed=0)
    assert transfers(route) == known


def test_same_seed_same_route():
    outputs = sums("hopcroft-kerr-2x3x3")
    first, again = (anneal(outputs, Cost(), drafts=100, seed=7) for _ in range(2))
    assert first == again


def test_more_drafts_are_not_worse():
    outputs, cost = sums("laderman"), Cost()
    few, many = (anneal(outputs, cost, drafts=drafts, seed=1) for drafts in (0, 300))
    assert price(outputs, many, cost) < price(outputs, few, cost)


def test_competing_schemes_are_judged_by_traffic():
    program = accumulate(*map(schemes.get, ("strassen", "accurate", "winograd")))
    assert program.name == "winograd"


@pytest.mark.parametrize("names", [(), ("strassen", "laderman")])
def test_schemes_must_share_a_grid(names: tuple[str, ...]):
    with pytest.raises(TiercelValueError, match="same grid"):
        accumulate(*map(schemes.get, names))


def test_routes_are_kept_on_disk(empty_cache: Path, monkeypatch: pytest.MonkeyPatch):
    outputs = sums("strassen-2x3x2")
    first = route_search.best_route(outputs, Cost(), drafts=20)
    assert list(empty_cache.glob("route-*"))

    def refuse(*_: object) -> None:
        raise AssertionError("must come from the cache")

    monkeypatch.setattr(route_search, "search", refuse)
    assert route_search.best_route(outputs, Cost(), drafts=20) == first


def test_damaged_cache_entry_is_searched_again(empty_cache: Path):
    outputs = sums("strassen-2x3x2")
    first = route_search.best_route(outputs, Cost(), drafts=20)
    for path in empty_cache.glob("route-*"):
        path.write_bytes(b"not a route")
    assert route_search.best_route(outputs, Cost(), drafts=20) == first
