"""``tiercel map``: a picture of which algorithm is chosen by M and N·K."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import track

from tiercel.bench.case import canonical_dtype
from tiercel.bench.environment import usable_cores
from tiercel.commands.files import PICTURE
from tiercel.planner.problem import SHORT_NAMES


@click.command("map")
@click.option("--device", help='"cuda", or the name of a GPU that a profile is shipped for.')
@click.option("--dtype", default="float32", show_default=True)
@click.option("--threads", type=click.IntRange(1), help="Default: all cores.")
@click.option("--least", default=64, show_default=True, type=click.IntRange(8))
@click.option("--most", default=8192, show_default=True, type=click.IntRange(16))
@click.option("--steps", default=36, show_default=True, type=click.IntRange(2), help="Per axis.")
@click.option("--static-b", is_flag=True, help="B is constant and packed once.")
@click.option("-o", "--output", required=True, type=PICTURE, help="The picture: png, svg or pdf.")
def crossover_map(
    device: str | None,
    dtype: str,
    threads: int | None,
    least: int,
    most: int,
    steps: int,
    static_b: bool,
    output: Path,
) -> None:
    """Draw which algorithm is chosen, and its predicted gain, by M and N·K."""
    import tiercel
    from tiercel.bench import map_picture

    if least >= most:
        raise click.UsageError(f"--least {least} must be under --most {most}")
    # Of a GPU's kernels some want multiples of 16; what is left of others is not the map's subject.
    sizes = map_picture.sizes(least, most, steps, 8 if device is None else 64)
    facts: dict[str, Any] = {"dtype": SHORT_NAMES.get(dtype, dtype), "static_b": static_b}
    if device is None:
        facts |= {"dtype": canonical_dtype(dtype), "threads": threads or usable_cores()}
    else:
        facts["device"] = device
    rows = track(sizes, "planning", console=Console(stderr=True))
    grid = [[tiercel.plan(M, n, n, **facts) for n in sizes] for M in rows]
    map_picture.write_map(grid, output)
    click.echo(f"picture: {output}")
