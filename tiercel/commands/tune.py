"""``tiercel tune``: measure this machine, or the candidates of given products, and keep the result.

``--shapes`` can be interrupted: what was measured is stored, and a second run continues.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tiercel import runtime
from tiercel.bench import candidates, regret, shapes, tuned
from tiercel.bench.case import Case, canonical_dtype
from tiercel.bench.environment import usable_cores
from tiercel.bench.model_layers import model_cases
from tiercel.bench.optional import require
from tiercel.commands.files import INPUT, OUTPUT
from tiercel.errors import TiercelValueError
from tiercel.planner import winners
from tiercel.planner.problem import GPU_DTYPES, SHORT_NAMES
from tiercel.planner.winners import Measured

#: Rows of input that a model's layers are measured with.
ROWS = 2048


@click.command()
@click.option("--shapes", "texts", multiple=True, help="Products to measure; as for bench.")
@click.option("--model", help="Measure a model's linear layers: MODULE:FUNCTION or a config.json.")
@click.option("--rows", multiple=True, type=click.IntRange(1), help="For --model. Default: 2048.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.option("--dtype", "dtypes", multiple=True, help="Default: float32 and float64.")
@click.option("--threads", multiple=True, type=click.IntRange(1), help="Default: all cores.")
@click.option("--layouts", multiple=True, help="Layouts of A,B such as row,col; repeatable.")
@click.option("--static-b", is_flag=True, help="B is constant and packed once.")
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    default=3.0,
    show_default=True,
    help="Time for each product.",
)
@click.option("--limit", type=click.FloatRange(0), help="Begin no product after so many seconds.")
@click.option("--seed", default=0, show_default=True, help="Of data and samples.")
@click.option("--again", is_flag=True, help="Also measure products that were measured before.")
@click.option("--regret", "show_regret", is_flag=True, help="Judge the planner's choices by them.")
@click.option("--import", "source", type=INPUT, help="Take over what another machine exported.")
@click.option("--export", "target", type=OUTPUT, help="Write all that is known of this machine.")
def tune(
    texts: Sequence[str],
    model: str | None,
    rows: Sequence[int],
    device: str,
    dtypes: Sequence[str],
    threads: Sequence[int],
    layouts: Sequence[str],
    static_b: bool,
    seconds: float,
    limit: float | None,
    seed: int,
    again: bool,
    show_regret: bool,
    source: Path | None,
    target: Path | None,
) -> None:
    """Measure this machine now, or with --shapes or --model the best candidates of products.

    Without these and --import the profile that plans are made with is measured and printed. With
    them the candidates of each product run in turns, and later calls of such products
    take the fastest. --export and --import share profiles and measurements with machines of the
    same CPU, number of cores and NumPy, or of the same GPU and PyTorch.
    """
    if (show_regret or rows) and not (texts or model):
        raise click.UsageError(
            "--regret and --rows are about products: name some by --shapes or --model"
        )
    place = _place(device)
    names = tuple(_dtype(name, device) for name in dtypes) or runtime.DTYPES
    if source is not None:
        taken = tuned.adopt(tuned.read(source))
        click.echo(f"{len(taken.profiles)} profiles, {len(taken.measured)} products: {source}")
    listed = [case for text in texts for case in shapes.parse(text, seed=seed)[0]]
    if model is not None:
        listed += model_cases(model, rows or [ROWS])
    if listed:
        cases = shapes.vary(
            listed,
            dtypes=names if dtypes else (),
            threads=threads or [usable_cores() if device == "cpu" else 1],
            layouts=layouts,
            static_b=static_b,
        )
        found = measure_all(place, cases, seconds, seed, again, limit)
        if show_regret and found:
            console = Console()
            console.print(regret.table(found))
            console.print(str(regret.regret(found)), highlight=False)
    elif source is None:
        click.echo(str(place.measure_machine(names)))
    if target is not None:
        known = tuned.of_machines([place.machine(name) for name in names])
        tuned.write(known, target)
        click.echo(f"{len(known.profiles)} profiles, {len(known.measured)} products: {target}")


def measure_all(
    place: Any,
    cases: Sequence[Case],
    seconds: float,
    seed: int,
    again: bool,
    limit: float | None = None,
) -> list[Measured]:
    """The candidates of each case, measured or known; whatever is measured is stored at once."""
    found = []
    began = time.monotonic()
    with _bar() as bar:
        task = bar.add_task("", total=len(cases))
        for case in cases:
            if limit is not None and time.monotonic() - began > limit:
                break
            bar.update(task, description=f"{case.label} {case.dtype}")
            found.append(_one(place, case, seconds, seed, again))
            bar.advance(task)
    return found


def _one(place: Any, case: Case, seconds: float, seed: int, again: bool) -> Measured:
    problem = place.problem_of(case)
    plan = place.predicted_plan(problem)
    known = winners.known(plan.machine.fingerprint).get(winners.key_of(problem))
    if known is not None and not again:
        return known
    promising = candidates.promising(plan, place.HOPELESS)
    times = place.measure(plan, promising, seconds=seconds, seed=seed)
    made = candidates.measured(plan, times)
    winners.add(plan.machine.fingerprint, [made])
    return made


def _place(device: str) -> Any:
    """The module that knows the machine and measures candidates on the device."""
    if device == "cpu":
        return candidates
    require("torch", "measuring on a GPU", "'tiercel[torch]'")
    from tiercel.bench import gpu_candidates

    gpu_candidates.require_device()
    return gpu_candidates


def _dtype(name: str, device: str) -> str:
    if device == "cpu":
        return canonical_dtype(name)
    found = SHORT_NAMES.get(name.lower(), name)
    if found in GPU_DTYPES:
        return found
    allowed = ", ".join([*GPU_DTYPES, *SHORT_NAMES])
    raise TiercelValueError(f"dtype: got {name!r}; allowed: {allowed}")


def _bar() -> Progress:
    # stderr: what is printed may be piped into a file
    return Progress(
        BarColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.completed}/{task.total} {task.description}"),
        console=Console(stderr=True),
    )
