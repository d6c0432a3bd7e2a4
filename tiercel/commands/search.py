"""``tiercel search``: find a scheme with few products, or a better one of the same rank."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from tiercel import schemes
from tiercel.commands.files import OUTPUT
from tiercel.errors import TiercelValueError

if TYPE_CHECKING:
    from tiercel.schemes.search.run import Progress
    from tiercel.schemes.search.settings import Settings

OBJECTIVES = ("rank", "accuracy", "worst-case", "nonzeros", "additions", "traffic")
RINGS = {
    None: ("mod2", "ternary"),
    "both": ("mod2", "ternary"),
    "mod2": ("mod2",),
    "ternary": ("ternary",),
}


@click.command()
@click.argument("m", type=click.IntRange(1))
@click.argument("k", type=click.IntRange(1))
@click.argument("n", type=click.IntRange(1))
@click.option(
    "--objective",
    type=click.Choice(OBJECTIVES),
    default="rank",
    show_default=True,
    help="What to minimise; all but rank go on at the least rank until the time is over.",
)
@click.option("--rank", type=click.IntRange(1), help="Rank to reach; default: the published mark.")
@click.option("--minutes", type=click.FloatRange(0, min_open=True), default=1.0, show_default=True)
@click.option("--rounds", type=click.IntRange(1), help="Rounds at most, as a provenance tells.")
@click.option("--processes", type=click.IntRange(1), default=1, show_default=True)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option(
    "--ring",
    type=click.Choice(["mod2", "ternary", "both"]),
    help="Walk over -1, 0, 1 only, only modulo 2 (always with --symmetry), or in both alike; "
    "default: both, mostly where the rank is less.",
)
@click.option("--symmetry", help='Search cyclic schemes of a cube with these cubes: "01,23,4".')
@click.option(
    "--state",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder to continue from and to leave the state in.",
)
@click.option(
    "--start",
    "starts",
    multiple=True,
    help="Scheme to start from, of this size or a neighbour's: a file or a name of the catalogue; "
    "may be repeated.",
)
@click.option("--from-classical", is_flag=True, help="Do not start from the catalogue's schemes.")
@click.option(
    "--output",
    type=OUTPUT,
    help="JSON file for the best scheme; default: print its equations.",
)
def search(
    m: int,
    k: int,
    n: int,
    minutes: float,
    rounds: int | None,
    state: Path | None,
    output: Path | None,
    **asked: Any,
) -> None:
    """Search for an M×K by K×N scheme, starting from the classical one and the catalogue's."""
    from tiercel.schemes.notation import format_equations
    from tiercel.schemes.search import run

    settings = settings_of(m, k, n, **asked)
    # The bar goes to stderr: what is printed may be piped into a file.
    with _bar() as bar:
        task = bar.add_task(f"<{m},{k},{n}>", total=60 * minutes, status="starting")
        began: list[float] = []

        def report(progress: Progress) -> None:
            began.append(progress.seconds)
            bar.update(task, completed=progress.seconds - began[0], status=_status(progress))

        with _interrupts() as caught:
            found = run.search(settings, 60 * minutes, state, report, lambda: bool(caught), rounds)
    if found is None:
        raise click.ClickException(
            "no scheme over the integers of the wanted rank was found: give more --minutes, a "
            "higher --rank, or a --state folder and run again to continue"
        )
    if output is None:
        click.echo(format_equations(found))
    else:
        output.write_text(schemes.dumps(found), encoding="utf-8")
    click.echo(f"{found}: {_figures(found)}\n{found.provenance}", err=True)


def settings_of(
    m: int,
    k: int,
    n: int,
    objective: str,
    rank: int | None,
    processes: int,
    seed: int,
    ring: str | None,
    symmetry: str | None,
    starts: tuple[str, ...],
    from_classical: bool,
) -> Settings:
    """What the command line asks for."""
    from tiercel.schemes.search.settings import Settings
    from tiercel.schemes.search.symmetry import parse_partition

    return Settings(
        grid=(m, k, n),
        objective=objective,
        target=rank,
        rings=("mod2",) if symmetry else RINGS[ring],
        evenly=ring == "both",
        partition=parse_partition(symmetry, n) if symmetry else None,
        seed=seed,
        processes=processes,
        known=tuple(map(_start, starts)),
        catalogue=not from_classical,
    )


def _start(text: str) -> schemes.Scheme:
    """The catalogue's scheme of this name, or the one in this file, named after it."""
    if text in schemes.names():
        return schemes.get(text)
    path = Path(text)
    if not path.is_file():
        raise TiercelValueError(
            f"--start must be a scheme file or a name that `tiercel schemes` lists: {text!r} is "
            "neither a file nor a name of the catalogue"
        )
    return replace(schemes.load(path), name=path.name)


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Signals to end, as they come.

    An exception that a handler raises gets lost in compiled code. So the search ends after its
    round, within seconds, and what was found is written as usual.
    """
    caught: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: caught.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _bar() -> Bar:
    return Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[status]}"),
        console=Console(stderr=True),
    )


def _status(progress: Progress) -> str:
    walked = f"{progress.flips / 1e6:.0f} M flips"
    nodes = f"rank {progress.least}, {progress.pooled} nodes" if progress.pooled else ""
    best = f"best {progress.best}: {progress.figure:g}" if progress.best else ""
    return " · ".join(part for part in (walked, nodes, best) if part)


def _figures(scheme: schemes.Scheme) -> str:
    return (
        f"Φ {float(schemes.phi(scheme)):g}, E {float(schemes.stability_factor(scheme)):g}, "
        f"{sum(scheme.nonzeros)} non-zeros, {scheme.additions} additions"
    )
