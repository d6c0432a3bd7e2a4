"""``tiercel tune``: measure this machine, or the candidates of given products, and keep the result.

``--shapes`` can be interrupted: what was measured is stored, and a second run continues.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tiercel import runtime
from tiercel.bench import candidates, regret, shapes, tuned
from tiercel.bench.case import Case, canonical_dtype
from tiercel.bench.environment import usable_cores
from tiercel.planner import winners
from tiercel.planner.choose import make_plan
from tiercel.planner.winners import Measured

READ = click.Path(exists=True, dir_okay=False, path_type=Path)
WRITE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.option("--shapes", "texts", multiple=True, help="Products to measure; as for bench.")
@click.option("--dtype", "dtypes", multiple=True, help="float32 or float64; default: both.")
@click.option("--threads", multiple=True, type=click.IntRange(1), help="Default: all cores.")
@click.option("--layouts", multiple=True, help="Layouts of A,B such as row,col; repeatable.")
@click.option("--static-b", is_flag=True, help="B is constant and packed once.")
@click.option("--seconds", default=3.0, show_default=True, help="Time for each product.")
@click.option("--seed", default=0, show_default=True, help="Of data and samples.")
@click.option("--again", is_flag=True, help="Also measure products that were measured before.")
@click.option("--regret", "show_regret", is_flag=True, help="Judge the planner's choices by them.")
@click.option("--import", "source", type=READ, help="Take over what another machine exported.")
@click.option("--export", "target", type=WRITE, help="Write all that is known of this machine.")
def tune(
    texts: Sequence[str],
    dtypes: Sequence[str],
    threads: Sequence[int],
    layouts: Sequence[str],
    static_b: bool,
    seconds: float,
    seed: int,
    again: bool,
    show_regret: bool,
    source: Path | None,
    target: Path | None,
) -> None:
    """Measure this machine now, or with --shapes the best candidates of products.

    Without --shapes and --import the profile that plans are made with is measured and printed.
    With --shapes the candidates of each product run in turns, and later calls of such products
    take the fastest. --export and --import share profiles and measurements with machines of the
    same CPU, number of cores and NumPy.
    """
    names = tuple(canonical_dtype(name) for name in dtypes) or runtime.DTYPES
    if source is not None:
        taken = tuned.adopt(tuned.read(source))
        click.echo(f"{len(taken.profiles)} profiles, {len(taken.measured)} products: {source}")
    if texts:
        listed = [case for text in texts for case in shapes.parse(text, seed=seed)[0]]
        cases = shapes.vary(
            listed,
            dtypes=names if dtypes else (),
            threads=threads or [usable_cores()],
            layouts=layouts,
            static_b=static_b,
        )
        found = measure_all(cases, seconds, seed, again)
        if show_regret and found:
            console = Console()
            console.print(regret.table(found))
            console.print(str(regret.regret(found)), highlight=False)
    elif source is None:
        click.echo(str(runtime.measure_again(names)))
    if target is not None:
        known = tuned.of_this_machine(names)
        tuned.write(known, target)
        click.echo(f"{len(known.profiles)} profiles, {len(known.measured)} products: {target}")


def measure_all(cases: Sequence[Case], seconds: float, seed: int, again: bool) -> list[Measured]:
    """The candidates of each case, measured or known; whatever is measured is stored at once."""
    found = []
    with _bar() as bar:
        task = bar.add_task("", total=len(cases))
        for case in cases:
            bar.update(task, description=f"{case.label} {case.dtype}")
            found.append(_one(case, seconds, seed, again))
            bar.advance(task)
    return found


def _one(case: Case, seconds: float, seed: int, again: bool) -> Measured:
    problem = candidates.problem_of(case)
    machine = runtime.machine((problem.compute,))
    known = winners.known(machine.fingerprint).get(winners.key_of(problem))
    if known is not None and not again:
        return known
    plan = make_plan(problem, machine)
    times = candidates.measure(plan, candidates.promising(plan), seconds=seconds, seed=seed)
    made = candidates.measured(plan, times)
    winners.add(machine.fingerprint, [made])
    return made


def _bar() -> Progress:
    # stderr: what is printed may be piped into a file
    return Progress(
        BarColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.completed}/{task.total} {task.description}"),
        console=Console(stderr=True),
    )
