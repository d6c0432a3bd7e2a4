"""Fill the catalogue: every grid up to size 5, every objective, on all cores.

    python -m tiercel.schemes.search.fill --minutes 8 --processes 16 --output found --state state

Each slice is one `search` on one core, continued from its folder. Every other slice goes to a grid
that has not reached its mark, as long as there is one, and whatever is found is a start for its
neighbours. The others minimise the objectives of grids that have, the least treated first.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from math import ceil
from multiprocessing import get_context
from pathlib import Path

from tiercel.schemes.files import dumps, load
from tiercel.schemes.marks import MARKS
from tiercel.schemes.scheme import Scheme
from tiercel.schemes.search.node import Grid
from tiercel.schemes.search.objectives import objective
from tiercel.schemes.search.run import Settings, search
from tiercel.schemes.search.symmetry import Partition

#: Seconds of one slice that looks for a rank; loading the compiled walk takes two of them.
SLICE = 25.0

#: Seconds of one that minimises, per product of the scheme: annealing takes longer for larger ones.
SLICE_PER_PRODUCT = 0.4

#: Objectives, and the family that the result is filed under.
FAMILIES = {"traffic": "lean", "accuracy": "accurate"}
AIMS = ("rank", *FAMILIES)

#: Cores at most that look for the same rank at the same time, each with its own seed.
CROWD = 4

#: Cubes are searched with symmetry where that is known to work; ⟨5,5,5;93⟩ takes a minute so.
PARTITIONS: dict[Grid, Partition] = {(5, 5, 5): ((0, 1), (2, 3), (4,))}


def fill(
    seconds: float,
    processes: int,
    output: Path,
    state: Path,
    known: tuple[Scheme, ...] = (),
    grids: tuple[Grid, ...] = tuple(MARKS),
    report: Callable[[str], None] = lambda _: None,
) -> None:
    """Search until the time is over; see the module.

    Args:
        seconds: wall-clock limit.
        processes: cores.
        output: folder for the scheme files, named as the catalogue expects them; those that are
            there are only replaced by better ones.
        state: folder for the state of each search.
        known: schemes to start from, beside those in `output`; filed where they are better.
        grids: sorted sizes.
        report: called with a line for each file.
    """
    output.mkdir(parents=True, exist_ok=True)
    for scheme in known:
        list(_file(scheme, "rank", output))
    began = time.monotonic()
    running: dict[Future[Scheme | None], tuple[Grid, str]] = {}
    treated = {(grid, aim): _slices(state, grid, aim) for grid in grids for aim in AIMS}
    turn = sum(treated.values())
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as workers:
        while time.monotonic() - began < seconds - 3 or running:
            while len(running) < processes and time.monotonic() - began < seconds - 3:
                turn += 1
                grid, aim = _next(grids, output, list(running.values()), treated, turn % 2 == 0)
                left = seconds - (time.monotonic() - began) - 2
                # A few searches for each rank, which differ by their seeds, and one per objective.
                seed = 1 + treated[grid, aim] % CROWD if aim == "rank" else 1
                treated[grid, aim] += 1
                folder = state / f"{_text(grid)}-{aim}-{seed}"
                starts = (*known, *_schemes(output))
                length = SLICE if aim == "rank" else SLICE_PER_PRODUCT * MARKS[grid].rank
                job = workers.submit(_slice, grid, aim, seed, min(length, left), folder, starts)
                running[job] = (grid, aim)
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for job in done:
                grid, aim = running.pop(job)
                for path in _file(job.result(), aim, output):
                    report(f"{time.monotonic() - began:6.0f} s  {path.name}")


def _next(
    grids: tuple[Grid, ...],
    output: Path,
    running: list[tuple[Grid, str]],
    treated: dict[tuple[Grid, str], int],
    minimise: bool,
) -> tuple[Grid, str]:
    open_grids = [x for x in grids if _rank(output, x) > MARKS[x].rank]
    for grid in sorted(open_grids, key=lambda x: (treated[x, "rank"], x)):
        if not minimise and running.count((grid, "rank")) < CROWD:
            return grid, "rank"
    choices = [
        (grid, aim)
        for grid in grids
        for aim in FAMILIES
        if grid not in open_grids and (grid, aim) not in running
    ]
    if not choices:
        return open_grids[0] if open_grids else grids[-1], "rank"
    return min(choices, key=lambda x: treated[x])


def _slice(
    grid: Grid, aim: str, seed: int, seconds: float, folder: Path, known: tuple[Scheme, ...]
) -> Scheme | None:
    partition = PARTITIONS.get(grid) if aim == "rank" else None
    settings = Settings(
        grid,
        aim,
        target=MARKS[grid].rank,
        rings=("mod2",) if partition else ("mod2", "ternary"),
        partition=partition,
        seed=seed,
        known=known,
        catalogue=False,
    )
    return search(settings, seconds, folder)


def _file(found: Scheme | None, aim: str, output: Path) -> Iterator[Path]:
    """Write a scheme where it beats the one that is there: the files written."""
    if found is None:
        return
    for name, family in FAMILIES.items():
        if aim in (name, "rank"):
            value = objective(name).value
            stem = f"{family}-{_text(found.grid)}"
            if tuple(sorted(found.grid)) != found.grid:
                return
            old = next(_schemes(output, f"{stem}-"), None)
            if old is None or (found.rank, *value(found)) < (old.rank, *value(old)):
                for path in output.glob(f"{stem}-*.json"):
                    path.unlink()
                path = output / f"{stem}-{found.rank}.json"
                path.write_text(dumps(found), encoding="utf-8")
                yield path


def _schemes(folder: Path, prefix: str = "") -> Iterator[Scheme]:
    for path in sorted(folder.glob(f"{prefix}*.json")):
        yield load(path)


def _rank(folder: Path, grid: Grid) -> int:
    """Rank on file, or a rank that no scheme has."""
    files = folder.glob(f"lean-{_text(grid)}-*.json")
    return min((int(path.stem.rsplit("-", 1)[1]) for path in files), default=10**6)


def _slices(state: Path, grid: Grid, aim: str) -> int:
    """Slices that earlier runs spent."""
    files = state.glob(f"{_text(grid)}-{aim}-*/state.json")
    spent = 0.9 * sum(json.loads(path.read_text(encoding="utf-8"))["seconds"] for path in files)
    return ceil(spent / (SLICE if aim == "rank" else SLICE_PER_PRODUCT * MARKS[grid].rank))


def _text(grid: Grid) -> str:
    return "x".join(map(str, grid))


def main() -> None:
    """The command line of the module."""
    parser = argparse.ArgumentParser(description="Fill the catalogue.")
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--processes", type=int, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--start", type=Path, help="folder of further schemes to start from")
    given = parser.parse_args()
    known = tuple(_schemes(given.start)) if given.start else ()
    fill(60 * given.minutes, given.processes, given.output, given.state, known, report=print)


if __name__ == "__main__":
    main()
