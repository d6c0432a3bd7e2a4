"""``tiercel regret``: how good the planner's choices were, from a file of ``tiercel tune``."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from tiercel.bench import tuned
from tiercel.bench.regret import regret as figures
from tiercel.bench.regret import table
from tiercel.errors import TiercelValueError


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Draw predicted against measured times to this file (png, svg or pdf).",
)
def regret(file: Path, plot: Path | None) -> None:
    """Judge the planner by the measured products in FILE, an export of tiercel tune --shapes."""
    read = tuned.read(file)
    if not read.measured:
        raise TiercelValueError(
            f"{file} holds no measured product; run tiercel tune --shapes … --export {file}"
        )
    console = Console()
    console.print(table(read.measured))
    console.print(str(figures(read.measured)), highlight=False)
    if plot is not None:
        from tiercel.bench.prediction_picture import write_prediction_picture

        machine = read.profiles[0]
        title = f"Predicted against measured: {machine.name}, {machine.cores} cores"
        write_prediction_picture(read.measured, title, plot)
        console.print(f"picture: {plot}")
