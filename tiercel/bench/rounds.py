"""One case: rounds of all libraries, more of them where the verdict is in doubt."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence

from tiercel.bench.crew import Crew, Worker
from tiercel.bench.peers import NUMPY, TIERCEL
from tiercel.bench.results import Timing
from tiercel.bench.timing import Spread, interleave, paired_ratios, spread

#: A median ratio to a peer below this, after few rounds, is doubted: so many more rounds are
#: played, for at most so many seconds. A product for which both libraries ran one routine read 0.88
#: after three rounds.
DOUBT, MORE_ROUNDS, MORE_SECONDS = 0.97, 15, 20.0


def play(
    crew: Crew,
    errors: Mapping[str, float],
    *,
    deadline: float,
    order: random.Random,
    on_round: Callable[[int], None],
    same_routine: bool,
) -> tuple[Timing, ...]:
    """Times of the libraries in ``errors`` (their errors), which are prepared, and their ratios.

    ``same_routine``: tiercel calls NumPy's own product; the two are compared within one process.
    Raises ``RequestFailed`` or ``WorkerLost`` when a library fails.
    """
    same_routine = same_routine and NUMPY in errors
    players = {name: _player(crew.workers[name]) for name in errors}
    times = interleave(players, deadline=deadline, order=order, on_round=on_round)
    if _doubtful(times, but=NUMPY if same_routine else None):
        until = time.monotonic() + MORE_SECONDS
        more = interleave(
            players, deadline=until, order=order, min_rounds=0, max_rounds=MORE_ROUNDS,
            on_round=on_round,
        )  # fmt: skip
        times = {name: own + more[name] for name, own in times.items()}
    ours = times.get(TIERCEL)
    ratios = {name: paired_ratios(own, ours) for name, own in times.items() if ours}
    ratios.pop(TIERCEL, None)
    if same_routine:
        ratios[NUMPY] = _within_one_process(crew.workers[TIERCEL])
    return tuple(
        Timing(name, spread(own), len(own), errors[name], ratios.get(name))
        for name, own in times.items()
    )


def _player(worker: Worker) -> Callable[[], float]:
    return lambda: worker.ask("go")["seconds"]


def _doubtful(times: Mapping[str, Sequence[float]], but: str | None) -> bool:
    """Whether tiercel seems slower than a peer (other than ``but``)."""
    ours = times.get(TIERCEL, ())
    peers = [own for name, own in times.items() if name not in (TIERCEL, but)]
    return bool(ours) and any(paired_ratios(own, ours).median < DOUBT for own in peers)


def _within_one_process(worker: Worker) -> Spread:
    """Ratios of NumPy's time to tiercel's, where tiercel runs NumPy's routine.

    Two processes differ by the pages that their operands happen to lie on, for as long as they
    hold them; what a caller of tiercel pays is the way to the routine.
    """
    seconds = worker.ask("beside_numpy")
    return paired_ratios(seconds["numpy"], seconds["own"])
