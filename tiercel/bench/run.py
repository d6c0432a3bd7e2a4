"""The whole measurement: cases grouped by thread count, a crew for each, rounds, records."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby

from tiercel.bench.case import Case
from tiercel.bench.crew import Crew, RequestFailed, Worker, WorkerLost, measure_machine
from tiercel.bench.peers import TIERCEL
from tiercel.bench.results import CaseResult, Overhead, Peak
from tiercel.bench.rounds import play


@dataclass(frozen=True)
class Progress:
    """``done`` of ``total`` cases, with fractions inside a case, and what runs now."""

    done: float
    total: int
    label: str


@dataclass
class Record:
    """What has been measured so far. An interrupted run keeps what it has."""

    cases: list[CaseResult] = field(default_factory=list)
    peaks: dict[tuple[str, int], float] = field(default_factory=dict)
    overhead: list[Overhead] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Keep a remark once."""
        if text not in self.notes:
            self.notes.append(text)

    def peak_rows(self) -> tuple[Peak, ...]:
        return tuple(Peak(dtype, threads, rate) for (dtype, threads), rate in self.peaks.items())


def measure(
    cases: Sequence[Case],
    libraries: Sequence[str],
    record: Record,
    *,
    seconds: float,
    seed: int = 0,
    overhead: bool = True,
    pause_after: float | None = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> None:
    """Measure every library on every case within about ``seconds``, filling ``record``.

    Cases of one thread count share a crew of worker processes. Each case may use an equal share of
    the time that is left, so small cases hand theirs on to large ones; every case gets at least
    three rounds even if that takes longer, and more where tiercel then seems slower than a peer.
    After ``pause_after`` seconds no further case is begun.
    Where tiercel calls NumPy's own product, the two are compared within one process.
    """
    order = random.Random(seed)
    ordered = sorted(cases, key=lambda case: (case.threads, case.flops))
    deadline = time.monotonic() + seconds
    pause = math.inf if pause_after is None else time.monotonic() + pause_after
    done = 0
    for threads, group in groupby(ordered, key=lambda case: case.threads):
        if time.monotonic() > pause:
            return
        on_progress(Progress(done, len(ordered), "measuring the machine"))
        if TIERCEL in libraries:
            measure_machine(threads)
        on_progress(Progress(done, len(ordered), f"starting {len(libraries)} libraries"))
        with Crew(list(libraries), threads) as crew:
            record.versions |= {name: w.version for name, w in crew.workers.items()}
            for case in group:
                if time.monotonic() > pause:
                    break

                def on_round(number: int, base: int = done, case: Case = case) -> None:
                    part = number / (number + 3)  # the number of rounds is not known beforehand
                    text = f"{case.label} {case.dtype}, {case.threads} thr, round {number}"
                    on_progress(Progress(base + part, len(ordered), text))

                on_round(0)
                share = max(deadline - time.monotonic(), 0.0) / (len(ordered) - done)
                _measure_case(crew, case, record, time.monotonic() + share, seed, order, on_round)
                done += 1
            if overhead and TIERCEL in crew.workers and not record.overhead:
                _measure_overhead(crew.workers[TIERCEL], record)
            for reason in crew.lost:
                record.note(reason)
    on_progress(Progress(done, len(ordered), "done"))


def _measure_case(
    crew: Crew,
    case: Case,
    record: Record,
    deadline: float,
    seed: int,
    order: random.Random,
    on_round: Callable[[int], None],
) -> None:
    about = f"{case.label} {case.dtype}"
    _measure_peak(crew, case, record)
    prepared = _ask_all(crew, record, about, "prepare", case=asdict(case), seed=seed)
    errors = {name: answer["error"] for name, answer in prepared.items()}
    plan = _plan(crew, case)
    same = plan is not None and plan.get("algorithm") == "vendor"
    try:
        timings = play(
            crew, errors, deadline=deadline, order=order, on_round=on_round, same_routine=same
        )
    except (RequestFailed, WorkerLost) as problem:
        record.note(f"{about}: given up: {problem}")
    else:
        record.cases.append(CaseResult(case, timings, plan))
    _ask_all(crew, record, about, "release")  # also finds and drops a worker that died


def _ask_all(
    crew: Crew, record: Record, about: str, do: str, **arguments: object
) -> dict[str, dict]:
    """Answers by library; one that cannot is noted and left out, one that died is dropped."""
    answers = {}
    for name, worker in list(crew.workers.items()):
        try:
            answers[name] = worker.ask(do, **arguments)
        except RequestFailed as problem:
            record.note(f"{about}: {problem}")
        except WorkerLost as problem:
            crew.drop(name, problem)
    return answers


def _measure_peak(crew: Crew, case: Case, record: Record) -> None:
    """The peak is the highest of all measures: the clock that any of the products may have had."""
    worker = crew.workers.get(TIERCEL)
    if worker is None:
        return
    key = (case.dtype, case.threads)
    try:
        rate = worker.ask("peak", dtype=case.dtype)["gflops"]
    except RequestFailed as problem:
        record.note(f"no measured peak for {case.dtype}: {problem}")
        return
    except WorkerLost as problem:
        crew.drop(TIERCEL, problem)
        return
    record.peaks[key] = max(rate, record.peaks.get(key, 0.0))


def _plan(crew: Crew, case: Case) -> dict | None:
    worker = crew.workers.get(TIERCEL)
    try:
        plan = worker.ask("plan", case=asdict(case))["plan"] if worker else None
    except RequestFailed:
        return None  # the times stand without it
    # What was chosen, without the list of candidates, which would outweigh the times.
    return {k: v for k, v in plan.items() if not isinstance(v, list | dict)} if plan else None


def _measure_overhead(worker: Worker, record: Record) -> None:
    try:
        rows = worker.ask("overhead")["rows"]
    except (RequestFailed, WorkerLost) as problem:
        record.note(f"no call overhead: {problem}")
        return
    record.overhead = [Overhead(**row) for row in rows]
