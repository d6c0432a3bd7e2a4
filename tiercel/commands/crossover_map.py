"""``tiercel map``: a picture of which algorithm is chosen by M and N·K."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.progress import track

from tiercel.bench.case import canonical_dtype
from tiercel.bench.environment import usable_cores


@click.command("map")
@click.option("--dtype", default="float32", show_default=True, help="float32 or float64.")
@click.option("--threads", type=click.IntRange(1), help="Default: all cores.")
@click.option("--least", default=64, show_default=True, type=click.IntRange(8))
@click.option("--most", default=8192, show_default=True, type=click.IntRange(16))
@click.option("--steps", default=36, show_default=True, type=click.IntRange(2), help="Per axis.")
@click.option("--static-b", is_flag=True, help="B is constant and packed once.")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The picture: png, svg or pdf.",
)
def crossover_map(
    dtype: str,
    threads: int | None,
    least: int,
    most: int,
    steps: int,
    static_b: bool,
    output: Path,
) -> None:
    """Draw which algorithm is chosen, and its predicted gain, by M and N·K."""
    from tiercel.bench import map_picture

    sizes = map_picture.sizes(least, most, steps)
    name, cores = canonical_dtype(dtype), threads or usable_cores()
    console = Console(stderr=True)
    grid = [
        row
        for M in track(sizes, "planning", console=console)
        for row in map_picture.plans([M], sizes, name, cores, static_b=static_b)
    ]
    map_picture.write_map(grid, output)
    click.echo(f"picture: {output}")
