"""``tiercel trace``: timestamps from inside the Hopper kernel, and what they say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tiercel.commands.files import INPUT, OUTPUT, PICTURE
from tiercel.errors import TiercelValueError
from tiercel.planner.problem import SHORT_NAMES

if TYPE_CHECKING:
    from tiercel.bench.trace.run import Recording


@click.command()
@click.argument("m", type=click.IntRange(1), required=False)
@click.argument("n", type=click.IntRange(1), required=False)
@click.argument("k", type=click.IntRange(1), required=False)
@click.option("--dtype", default="bf16", show_default=True)
@click.option("--schedule", type=click.Choice(["pingpong", "cooperative"]))
@click.option("--epilogue", help="A ready-made one, such as gelu, swiglu or residual_rms.")
@click.option("--output", type=OUTPUT, help="Chrome trace (JSON), for Perfetto.")
@click.option("--plot", type=PICTURE, help="Picture of one multiprocessor.")
@click.option("--save", type=OUTPUT, help="Recording, to look at elsewhere.")
@click.option("--load", type=INPUT, multiple=True, help="A recording instead of a run.")
@click.option("--ctas", default=4, show_default=True, help="CTAs in the Chrome trace.")
def trace(
    m: int | None,
    n: int | None,
    k: int | None,
    dtype: str,
    schedule: str | None,
    epilogue: str | None,
    output: Path | None,
    plot: Path | None,
    save: Path | None,
    load: tuple[Path, ...],
    ctas: int,
) -> None:
    """Run an M×K by K×N product on a Hopper GPU and show what each warp group does when."""
    from tiercel.bench.trace import picture, report
    from tiercel.bench.trace.chrome import chrome_trace
    from tiercel.bench.trace.run import load as recording_of

    if load:
        found = [recording_of(file) for file in load]
    elif m is None or n is None or k is None:
        raise click.UsageError("give M, N and K, or --load FILE")
    else:
        found = [_recorded(m, n, k, dtype, schedule, epilogue)]
    for one in found:
        click.echo(str(one.of))
        for line in report.report(one).lines():
            click.echo(f"  {line}")
    if save is not None:
        found[0].save(save)
    if output is not None:
        output.write_text(json.dumps(chrome_trace(found[0], ctas)), encoding="utf-8")
    if plot is not None:
        picture.draw(found, plot)


def _recorded(
    m: int, n: int, k: int, dtype: str, schedule: str | None, epilogue: str | None
) -> Recording:
    """A run with normal random operands; B is a weight (N, K), used transposed."""
    from tiercel.bench.trace.run import run

    name = SHORT_NAMES.get(dtype.lower(), dtype)
    if name not in ("bfloat16", "float16"):
        raise TiercelValueError(f"dtype is {dtype}; the products of bf16 and fp16 can be traced")
    return run(m, n, k, name, schedule, epilogue)
