"""The process that measures one library: reads requests, answers in one JSON line each.

Started by `tiercel.bench.crew` as ``python -m tiercel.bench.worker NAME THREADS``. Each library has
a process of its own because thread pools spin after a call and would steal from the next library.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TextIO

import numpy as np

from tiercel.bench.accuracy import relative_error
from tiercel.bench.case import Case
from tiercel.bench.operands import Operands, make_operands
from tiercel.bench.overhead import measure_overhead
from tiercel.bench.peers import Library, matmul_options
from tiercel.bench.roster import LIBRARIES
from tiercel.bench.timing import Turn, plan_turn, take_pairs, take_turn, warm_up

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


@dataclass
class Bench:
    """The library and, between ``prepare`` and ``release``, the product on the bench."""

    library: Library
    threads: int
    operands: Operands | None = None
    call: Callable[[], object] | None = None
    turn: Turn | None = None


def prepare(bench: Bench, case: dict[str, Any], seed: int) -> dict[str, Any]:
    """Make operands, warm up, judge the result; fixes the turn that ``go`` repeats."""
    release(bench)
    described = Case(**case)
    bench.operands = make_operands(described, seed)
    bench.call = bench.library.bind(described, bench.operands)
    seconds = warm_up(bench.call)
    bench.turn = plan_turn(seconds)
    error = relative_error(bench.operands.a, bench.operands.b, bench.operands.out)
    return {"seconds": seconds, "error": error}


def go(bench: Bench) -> dict[str, Any]:
    """One turn: median seconds per call."""
    assert bench.call is not None and bench.turn is not None, "prepare comes before go"
    return {"seconds": take_turn(bench.call, bench.turn)}


def beside_numpy(bench: Bench) -> dict[str, Any]:
    """Seconds per call of ``np.matmul`` and of the library on the same operands."""
    assert bench.call and bench.turn and bench.operands, "prepare comes before beside_numpy"
    a, b, out = bench.operands.a, bench.operands.b, bench.operands.out
    numpys, own = take_pairs(lambda: np.matmul(a, b, out=out), bench.call, bench.turn)
    return {"numpy": numpys, "own": own}


def release(bench: Bench) -> dict[str, Any]:
    """Give the operands' memory back."""
    bench.operands = bench.call = bench.turn = None
    return {}


def peak(bench: Bench, dtype: str) -> dict[str, Any]:
    """Measured multiply-add peak, GFLOP/s, on as many threads as the products use."""
    from tiercel.planner.problem import DTYPES
    from tiercel.targets.cpu.measure import peak_gflops

    compute, *_ = DTYPES[dtype]
    with ThreadPoolExecutor(bench.threads) as pool:  # the measured code runs without the GIL
        rates = pool.map(peak_gflops, [compute] * bench.threads)
        return {"gflops": sum(rates)}


def plan(bench: Bench, case: dict[str, Any]) -> dict[str, Any]:
    """What tiercel chose for a case."""
    import tiercel

    c = Case(**case)
    chosen = tiercel.plan(
        c.m,
        c.n,
        c.k,
        dtype=c.dtype,
        layout_a=c.layout_a,
        layout_b=c.layout_b,
        static_b=c.static_b,
        **matmul_options(c),
    )
    return {"plan": chosen.to_json()}


def overhead(bench: Bench) -> dict[str, Any]:
    """Call overhead of tiercel against NumPy on tiny arrays, in one process."""
    return {"rows": measure_overhead()}


REQUESTS: dict[str, Callable[..., dict[str, Any]]] = {
    "prepare": prepare,
    "go": go,
    "beside_numpy": beside_numpy,
    "release": release,
    "peak": peak,
    "plan": plan,
    "overhead": overhead,
}


def serve(bench: Bench, requests: TextIO, answers: TextIO) -> None:
    """Answer requests until the pipe closes. A failed request leaves the worker alive."""
    for line in requests:
        request = json.loads(line)
        handle = REQUESTS[request.pop("do")]
        try:
            answer = handle(bench, **request)
        except Exception as problem:  # the parent decides what a failure means
            answer = {"failed": f"{type(problem).__name__}: {problem}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def die_with_parent() -> None:
    """Have Linux end this process with its parent: a stopped worker cannot notice by itself."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main(name: str, threads: int) -> None:
    """Open the library, say its version, then serve."""
    die_with_parent()
    # Libraries print to stdout on load; answers travel on a private copy of the pipe.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    start = time.perf_counter()
    try:
        library = LIBRARIES[name].open()
        library.set_threads(threads)
    except Exception as problem:  # the parent drops the library
        answers.write(json.dumps({"failed": f"{type(problem).__name__}: {problem}"}) + "\n")
        return
    hello = {"version": library.version, "seconds": time.perf_counter() - start}
    answers.write(json.dumps(hello) + "\n")
    answers.flush()
    serve(Bench(library, threads), sys.stdin, answers)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
