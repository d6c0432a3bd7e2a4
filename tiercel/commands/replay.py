"""``tiercel schemes replay``: the searches that the catalogue's schemes came from, once more."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from typing import TYPE_CHECKING

import click

from tiercel import schemes
from tiercel.commands.search import search, settings_of
from tiercel.errors import TiercelValueError

if TYPE_CHECKING:
    from tiercel.schemes.search.settings import Settings

TOLD = re.compile(r"tiercel search (.+) --rounds (\d+): \d+ M flips, (\d+) s")


@dataclass(frozen=True)
class Recipe:
    """A search that can be repeated: what was asked for, its rounds, and the seconds they took."""

    settings: Settings
    rounds: int
    seconds: int


def recipe(scheme: schemes.Scheme) -> Recipe | None:
    """The search that the provenance tells; None for a scheme that was written down by hand.

    >>> told = recipe(schemes.get("lean-2x2x3"))
    >>> told.settings.grid, told.settings.objective
    ((2, 2, 3), 'traffic')
    >>> recipe(schemes.get("strassen"))
    """
    told = TOLD.fullmatch(scheme.provenance)
    if told is None:
        return None
    asked = search.make_context("search", told[1].split()).params
    for name in ("minutes", "rounds", "state", "output"):  # they say when to stop, not what to do
        del asked[name]
    return Recipe(settings_of(**asked), int(told[2]), int(told[3]))


def again(name: str) -> bool:
    """Repeat the search of a catalogue scheme: whether the same coefficients come out."""
    from tiercel.schemes.search.run import search

    told = recipe(schemes.get(name))
    assert told is not None, "names without a recipe were refused before"
    return search(told.settings, math.inf, rounds=told.rounds) == schemes.get(name)


@click.command()
@click.argument("names", nargs=-1)
@click.option("--within", type=click.IntRange(1), help="Only searches that took SECONDS at most.")
@click.option("--processes", type=click.IntRange(1), default=os.cpu_count(), help="At a time.")
def replay(names: tuple[str, ...], within: int | None, processes: int) -> None:
    """Repeat the searches of these schemes, or of all, and compare what they find.

    All take hours of a core. Searches are the same on the same kind of machine; where a processor
    or a library rounds a logarithm otherwise, a walk may go another way.
    """
    chosen = dict(_chosen(names, within))
    if not chosen:
        raise TiercelValueError(
            f"no search took {within} s or less: give a larger --within, or names"
        )
    differ = []
    context = get_context("spawn")  # a forked child of a process with threads may hang
    with ProcessPoolExecutor(processes, context) as workers:
        # The longest first, so that none is left alone at the end.
        jobs = {workers.submit(again, x): x for x in sorted(chosen, key=chosen.get, reverse=True)}  # type: ignore[arg-type]
        for job in as_completed(jobs):
            same = job.result()
            click.echo(f"{jobs[job]}: {'the same' if same else 'DIFFERENT'}")
            if not same:
                differ.append(jobs[job])
    if differ:
        raise click.ClickException(f"{len(differ)} of {len(jobs)} differ: {', '.join(differ)}")


def _chosen(names: tuple[str, ...], within: int | None) -> Iterator[tuple[str, int]]:
    """The names to replay and the seconds that each took."""
    for name in names or schemes.names():
        told = recipe(schemes.get(name))
        if told is None and names:
            raise TiercelValueError(
                f"{name} was not found by a search: its provenance is "
                f"{schemes.get(name).provenance!r}; choose lean-* or accurate-* schemes"
            )
        if told is not None and (within is None or told.seconds <= within):
            yield name, told.seconds
