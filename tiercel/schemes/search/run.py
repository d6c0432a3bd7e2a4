"""The whole search: rounds of tasks on several processes until the time is over."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

from tiercel.schemes.scheme import Scheme
from tiercel.schemes.search.jit import require_numba
from tiercel.schemes.search.settings import Progress, Settings
from tiercel.schemes.search.state import State
from tiercel.schemes.search.tasks import work

__all__ = ["Progress", "Settings", "search"]


def search(
    settings: Settings,
    seconds: float,
    folder: Path | None = None,
    report: Callable[[Progress], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
    rounds: int | None = None,
) -> Scheme | None:
    """The best scheme found in the given time, verified; None if no rank of interest was reached.

    What a round does follows from the settings and the rounds before it. The clock only ends the
    search, and one of as many rounds finds the same scheme again.

    Args:
        settings: what to search for.
        seconds: wall-clock limit; a task that runs is finished, which takes two seconds or so.
        folder: state to continue from and to leave behind; one per grid and symmetry.
        report: called after each round.
        stop: asked before each round whether to end early.
        rounds: limit, of this search and those that it continues together.

    Raises:
        TiercelValueError: a folder of another search.
        TiercelRuntimeError: numba is not installed.
    """
    require_numba()
    state = State(settings, folder)
    began = time.monotonic()
    try:
        with _workers(settings.processes) as workers:
            while not (state.finished or stop() or state.rounds == rounds):
                if time.monotonic() - began >= seconds:
                    break
                tasks = state.tasks()
                for result in map(work, tasks) if workers is None else workers.map(work, tasks):
                    state.merge(result)
                report(state.end_round(time.monotonic() - began))
    finally:
        state.save(time.monotonic() - began)
    return state.best


@contextmanager
def _workers(processes: int) -> Iterator[Executor | None]:
    if processes == 1:
        yield None
        return
    # Spawned, for a forked child of a process with threads (NumPy's) may hang.
    context = get_context("spawn")
    with ProcessPoolExecutor(processes, context, initializer=_leave_interrupts) as executor:
        yield executor


def _leave_interrupts() -> None:
    """Ctrl-C and `timeout` reach the whole group; the parent ends the search after the round."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
