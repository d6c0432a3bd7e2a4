"""A small, hand-made result for the tests of what is shown."""

from typing import Any

from tiercel.bench.case import Case
from tiercel.bench.results import CaseResult, Overhead, Peak, Results, Timing
from tiercel.bench.timing import Spread


def flat(value: float) -> Spread:
    return Spread(value, value, value)


def case_result(case: Case, ours: float, **peers: float) -> CaseResult:
    """tiercel takes ``ours`` seconds, each peer its own."""
    timings = [Timing("tiercel", flat(ours), 3, 1.5e-7)]
    timings += [Timing(n, flat(t), 3, 1.2e-7, flat(t / ours)) for n, t in peers.items()]
    return CaseResult(case, tuple(timings))


def sample_results(**changes: Any) -> Results:
    squares = [
        case_result(Case(n, n, n, group="squares"), ours, numpy=1.2 * ours, blis=1.1 * ours)
        for n, ours in ((512, 3e-3), (1024, 2e-2), (2048, 0.14))
    ]
    barred = Case(2048, 11008, 4096, group="plain", bar=1.22)
    random = [
        case_result(Case(900, 800, 700, group="random"), 1e-2, numpy=1.05e-2),
        case_result(Case(901, 800, 700, group="random"), 1e-2, numpy=0.98e-2),
        case_result(Case(2, 2, 2, group="random"), 1e-6, numpy=0.5e-6),
    ]
    fields: dict = {
        "command": "tiercel bench --shapes quick",
        "date": "2026-01-02T03:04:05+00:00",
        "seconds": 70.0,
        "seed": 0,
        "machine": {"cpu": "A CPU <fast>", "cores": 2},
        "libraries": {"tiercel": "0.1.0", "numpy": "2.4"},
        "cases": (*squares, case_result(barred, 1.6, numpy=1.92), *random),
        "peaks": (Peak("float32", 1, 98.0),),
        "overhead": (Overhead(4, 0.6, 2.6),),
        "notes": ("mkl not found (pip install mkl)",),
    }
    return Results(**fields | changes)
