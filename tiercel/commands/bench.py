"""``tiercel bench``: options, progress bar, and where the results go."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from tiercel.bench import run, shapes
from tiercel.bench.case import Case, canonical_dtype
from tiercel.bench.environment import (
    describe_machine,
    load_average,
    slowing_variables,
    usable_cores,
)
from tiercel.bench.html import write_html
from tiercel.bench.picture import svg_text, write_picture
from tiercel.bench.results import Results, joined, read_json, write_json
from tiercel.bench.roster import choose_libraries
from tiercel.bench.table import render
from tiercel.commands.files import OUTPUT, PICTURE
from tiercel.errors import TiercelValueError

FILE_WIDTH = 160  # characters of the table when it goes to a file or a pipe
BUSY_LOAD = 0.7
SHAPES_HELP = (
    "What to multiply; repeatable. A set (quick, full, issue), a group of a set (issue:packed), "
    "random:COUNT, shapes (512,128x4096x4096 as MxNxK), or a file with one shape per line."
)


@click.command()
@click.option("--shapes", "texts", multiple=True, default=("quick",), help=SHAPES_HELP)
@click.option("--dtype", "dtypes", multiple=True, help="float32 or float64; repeatable.")
@click.option("--threads", multiple=True, type=click.IntRange(1), help="Threads; repeatable.")
@click.option("--layouts", multiple=True, help="Layouts of A,B such as row,col; repeatable.")
@click.option("--static-b", is_flag=True, help="Pack B once, outside the timed region.")
@click.option("--peers", default="", help="Comma-separated peers; default: all that are found.")
@click.option("--seconds", type=click.FloatRange(0), help="Time for all shapes together.")
@click.option("--seed", default=0, show_default=True, help="Of the data and the random shapes.")
@click.option("--plot", type=PICTURE, help="Write a picture (png, svg, pdf).")
@click.option("--json", "json_path", type=OUTPUT, help="Write the results.")
@click.option(
    "--resume",
    is_flag=True,
    help="Measure only what the --json file lacks, and add it there.",
)
@click.option(
    "--pause-after",
    type=click.FloatRange(0),
    help="Begin no further case after so many seconds; --resume measures the rest.",
)
@click.option("--html", "html_path", type=OUTPUT, help="Write a self-contained page.")
def bench(
    texts: Sequence[str],
    dtypes: Sequence[str],
    threads: Sequence[int],
    layouts: Sequence[str],
    static_b: bool,
    peers: str,
    seconds: float | None,
    seed: int,
    plot: Path | None,
    json_path: Path | None,
    resume: bool,
    pause_after: float | None,
    html_path: Path | None,
) -> None:
    """Measure tiercel against every BLAS found on this machine.

    The default run takes under 90 s on a two-core machine and uses all cores. Rates are effective
    GFLOP/s: 2·M·N·K over the median time, whatever number of multiplications was really done.
    """
    console = Console() if sys.stdout.isatty() else Console(width=FILE_WIDTH)
    cases, deserved = _cases(texts, seed, dtypes, threads, layouts, static_b)
    earlier = _earlier(json_path, resume)
    if earlier:
        known = {result.case for result in earlier.cases}
        rest = [case for case in cases if case not in known]
        deserved, cases = deserved * len(rest) / len(cases), rest
    libraries, missing = choose_libraries(_peer_names(peers, texts))
    record = run.Record(notes=[*missing, *_shell_notes(), *_load_notes()])
    start = time.monotonic()
    try:
        with _progress(console) as bar:
            task = bar.add_task("", total=len(cases))
            run.measure(
                cases,
                libraries,
                record,
                seconds=deserved if seconds is None else seconds,
                seed=seed,
                pause_after=pause_after,
                on_progress=lambda p: bar.update(task, completed=p.done, description=p.label),
            )
    except KeyboardInterrupt:
        console.print(f"interrupted after {len(record.cases)} of {len(cases)} cases")
    results = _results(record, seed, time.monotonic() - start)
    if earlier:
        results = joined(earlier, results)
    console.print(render(results, console.width))
    _write(results, plot, json_path, html_path)


def _earlier(path: Path | None, resume: bool) -> Results | None:
    """What a run that is resumed has already."""
    if not resume:
        return None
    if path is None:
        raise TiercelValueError("--resume continues a file of results: name it with --json")
    return read_json(path) if path.exists() else None


def _cases(
    texts: Sequence[str],
    seed: int,
    dtypes: Sequence[str],
    threads: Sequence[int],
    layouts: Sequence[str],
    static_b: bool,
) -> tuple[list[Case], float]:
    """All cases and the seconds they deserve.

    Sets that name no threads run on all cores; of one that does, threads choose cases.
    """
    cases: list[Case] = []
    seconds = 0.0
    for text in texts:
        listed, deserved = shapes.parse(text, seed=seed)
        names_threads = text.partition(":")[0] == "issue"
        kept = [case for case in listed if case.threads in threads or not threads]
        if names_threads and not kept:
            raise TiercelValueError(
                f"threads: {text!r} has no case of {', '.join(map(str, threads))} threads; "
                f"it has {', '.join(map(str, sorted({case.threads for case in listed})))}"
            )
        varied = shapes.vary(
            kept if names_threads else listed,
            dtypes=[canonical_dtype(dtype) for dtype in dtypes],
            threads=[] if names_threads else threads or [usable_cores()],
            layouts=layouts,
            static_b=static_b,
        )
        cases += varied
        seconds += deserved * len(varied) / len(listed)
    return list(dict.fromkeys(cases)), seconds


def _peer_names(peers: str, texts: Sequence[str]) -> list[str]:
    """Random shapes are many and are judged against NumPy, which a caller would otherwise use."""
    if not peers and all(text.startswith("random") for text in texts):
        return ["numpy"]
    return [name.strip() for name in peers.split(",") if name.strip()]


def _shell_notes() -> list[str]:
    return [
        f"{name}={value} is set in this shell and can slow a peer; it was unset for the benchmark"
        for name, value in slowing_variables().items()
    ]


def _load_notes() -> list[str]:
    load = load_average()
    if load is None or load < BUSY_LOAD:
        return []
    return [f"other programs were running at the start (load average {load:.1f}): rates are low"]


def _progress(console: Console) -> Progress:
    columns = (BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    return Progress(*columns, console=console, transient=True)


def _results(record: run.Record, seed: int, seconds: float) -> Results:
    return Results(
        command=shlex.join(["tiercel", *sys.argv[1:]]),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=seconds,
        seed=seed,
        machine=describe_machine(),
        libraries=record.versions,
        cases=tuple(record.cases),
        peaks=record.peak_rows(),
        overhead=tuple(record.overhead),
        notes=tuple(record.notes),
    )


def _write(
    results: Results, plot: Path | None, json_path: Path | None, html_path: Path | None
) -> None:
    if json_path:
        write_json(results, json_path)
        click.echo(f"results: {json_path}")
    if plot:
        write_picture(results, plot)
        click.echo(f"picture: {plot}")
    if html_path:
        write_html(results, html_path, _svg(results))
        click.echo(f"page: {html_path}")


def _svg(results: Results) -> str | None:
    """The picture as svg text for the page; a page without matplotlib has the table only."""
    return svg_text(results) if find_spec("matplotlib") else None
