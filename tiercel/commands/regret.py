"""``tiercel regret``: how good the planner's choices were, from a file of ``tiercel tune``."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from tiercel.bench import tuned
from tiercel.bench.regret import Kind, by_kind, table
from tiercel.bench.regret import regret as figures
from tiercel.bench.replan import grid_gain, replanned
from tiercel.bench.tuned import Profile, Tuned
from tiercel.commands.files import INPUT, PICTURE
from tiercel.errors import TiercelValueError
from tiercel.planner.machine import Machine
from tiercel.planner.winners import Measured


@click.command()
@click.argument("file", type=INPUT)
@click.option("--replan", is_flag=True, help="Judge what would be chosen today.")
@click.option(
    "--grid",
    type=click.IntRange(1),
    help="Predict the gain over the whole grid of layers as well, all sizes divided by this.",
)
@click.option(
    "--plot",
    type=PICTURE,
    help="Draw predicted against measured times to this file (png, svg or pdf).",
)
def regret(file: Path, replan: bool, grid: int | None, plot: Path | None) -> None:
    """Judge the planner by the measured products in FILE, an export of tiercel tune --shapes."""
    read = tuned.read(file)
    if not read.measured:
        raise TiercelValueError(
            f"{file} holds no measured product; run tiercel tune --shapes … --export {file}"
        )
    console = Console()
    measured = _today(read) if replan else list(read.measured)
    for kind, products in by_kind(measured).items():
        console.print(_named(kind, read.profiles[0]), style="bold")
        console.print(table(products))
        console.print(str(figures(products)), highlight=False)
        if grid is not None:
            count, gain = grid_gain(read.profiles[0], kind, grid)
            console.print(f"predicted over the {count} products of the grid: {gain:+.1%}")
    if replan and len(measured) < len(read.measured):
        left = len(read.measured) - len(measured)
        console.print(f"{left} products are left out: their choice of today was not measured")
    if plot is not None:
        from tiercel.bench.prediction_picture import write_prediction_picture

        title = f"Predicted against measured: {_place(read.profiles[0])}"
        write_prediction_picture(measured, title, plot)
        click.echo(f"picture: {plot}")


def _today(read: Tuned) -> list[Measured]:
    """All measured products as they are planned now, each by its machine's profile."""
    found: list[Measured] = []
    for profile in read.profiles:
        if isinstance(profile, Machine):
            own = [m for m in read.measured if m.compute in profile.rates]
        else:
            own = [m for m in read.measured if m.dtype in profile.rates]
        found += replanned(own, profile)
    return found


def _named(kind: Kind, profile: Profile) -> str:
    dtype, static_b, threads = kind
    marks = [dtype, "B packed"] if static_b else [dtype]
    if isinstance(profile, Machine):
        marks.append(f"{threads} thread{'s' if threads > 1 else ''}")
    return f"{profile.name}: {', '.join(marks)}"


def _place(profile: Profile) -> str:
    return (
        f"{profile.name}, {profile.cores} cores" if isinstance(profile, Machine) else profile.name
    )
