"""The named schemes. Nothing is built before it is asked for, and nothing twice."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from itertools import permutations
from typing import TYPE_CHECKING

from tiercel.errors import TiercelValueError
from tiercel.schemes.compose import classical, concatenate, tensor
from tiercel.schemes.scheme import Scheme
from tiercel.schemes.transform import orient

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

Grid = tuple[int, int, int]


@dataclass(frozen=True)
class Entry:
    """What is known of a scheme before it is built."""

    grid: Grid
    rank: int
    build: Callable[[], Scheme]
    listed: bool = True


def get(name: str) -> Scheme:
    """The catalogue's scheme of this name; the same object at every call.

    Raises:
        TiercelValueError: no such name; the message has those that are most like it.

    >>> get("winograd")
    Scheme(<2,2,2;7> winograd)
    """
    if name not in _entries():
        from difflib import get_close_matches

        near = " or ".join(map(repr, get_close_matches(name.lower(), _entries(), n=2)))
        raise TiercelValueError(
            f"no scheme is called {name!r}{near and f' (did you mean {near}?)'}; `tiercel schemes` "
            "lists the catalogue, tiercel.schemes.load(path) reads your own"
        )
    return _build(name)


def names() -> tuple[str, ...]:
    """The names that `get` knows, by grid size and then rank.

    A scheme whose name ends in a grid that is not a cube exists in all orders of that grid. Of
    schemes that the search found only the order m ≤ k ≤ n is listed; `find` and `get` have all.

    >>> [name for name in names() if name.startswith("hopcroft-kerr-") and name.endswith("3x2")]
    ['hopcroft-kerr-3x3x2', 'hopcroft-kerr-4x3x2']
    """
    return tuple(name for name, entry in _entries().items() if entry.listed)


def find(m: int, k: int, n: int) -> tuple[Scheme, ...]:
    """All catalogue schemes of the grid ⟨m,k,n⟩, fewest products first.

    >>> find(3, 2, 2)[0]
    Scheme(<3,2,2;11> strassen-3x2x2)
    """
    return tuple(_build(name) for name, entry in _entries().items() if entry.grid == (m, k, n))


@cache
def _entries() -> dict[str, Entry]:
    entries = {
        "strassen": Entry((2, 2, 2), 7, _known("strassen")),
        "winograd": Entry((2, 2, 2), 7, _known("winograd")),
        "accurate": Entry((2, 2, 2), 7, _known("accurate")),
        "laderman": Entry((3, 3, 3), 23, _known("laderman")),
        "sparse-3x3x3": Entry((3, 3, 3), 23, _known("sparse_3x3x3")),
        "strassen2": Entry((4, 4, 4), 49, _square("strassen")),
        "strassen3": Entry((8, 8, 8), 343, lambda: tensor(get("strassen"), get("strassen2"))),
        "winograd2": Entry((4, 4, 4), 49, _square("winograd")),
        "accurate2": Entry((4, 4, 4), 49, _square("accurate")),
        "strassen*laderman": Entry(
            (6, 6, 6), 161, lambda: tensor(get("strassen"), get("laderman"))
        ),
        **_orders("strassen", (2, 2, 3), 11, _strassen_2x2x3),
        **_orders("hopcroft-kerr", (2, 3, 3), 15, _known("hopcroft_kerr", "hopcroft_kerr_2x3x3")),
        **_orders("hopcroft-kerr", (2, 3, 4), 20, _known("hopcroft_kerr", "hopcroft_kerr_2x3x4")),
        **_found(),
    }
    by_size = sorted(
        entries.items(), key=lambda item: (sorted(item[1].grid), item[1].grid, item[1].rank)
    )
    return dict(by_size)


@cache
def _build(name: str) -> Scheme:
    return replace(_entries()[name].build(), name=name)


def _known(module: str, function: str = "") -> Callable[[], Scheme]:
    @cache  # every order of the grid starts from it
    def build() -> Scheme:
        return getattr(import_module(f"tiercel.schemes.known.{module}"), function or module)()

    return build


def _found() -> dict[str, Entry]:
    """What `tiercel search` found, in all orders of the grids, known by the files' names alone.

    The files are ``found/<family>-<m>x<k>x<n>-<rank>.json``, m ≤ k ≤ n.
    """
    from importlib.resources import files  # also of a package in a zip; importing need not pay

    entries = {}
    folder = files(__package__ or "tiercel.schemes").joinpath("found")
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        stem, extension = os.path.splitext(file.name)
        if extension == ".json":
            family, sizes, rank = stem.rsplit("-", 2)
            m, k, n = map(int, sizes.split("x"))
            orders = _orders(family, (m, k, n), int(rank), _file(file))
            for name, entry in orders.items():
                entries[name] = replace(entry, listed=entry.grid == (m, k, n))
    return entries


def _file(file: Traversable) -> Callable[[], Scheme]:
    @cache
    def build() -> Scheme:
        from tiercel.schemes.files import loads  # json, which importing need not pay for

        return loads(file.read_text(encoding="utf-8"))

    return build


def _square(name: str) -> Callable[[], Scheme]:
    return lambda: tensor(get(name), get(name))


def _strassen_2x2x3() -> Scheme:
    return concatenate(get("strassen"), classical(2, 2, 1), axis="n")


def _orders(family: str, grid: Grid, rank: int, base: Callable[[], Scheme]) -> dict[str, Entry]:
    """One entry per order of the grid, each oriented from the scheme that `base` builds."""
    oriented = {}
    for m, k, n in sorted(set(permutations(grid))):

        def build(m: int = m, k: int = k, n: int = n) -> Scheme:
            return orient(base(), m, k, n)

        oriented[f"{family}-{m}x{k}x{n}"] = Entry((m, k, n), rank, build)
    return oriented
