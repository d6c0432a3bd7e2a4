"""Measures the candidates of a plan in turns: what the planner predicted, beside what happens.

All run in one process, unlike the libraries of ``tiercel bench``: the candidates are to share the
state of the machine. NumPy's threads go on spinning after a product; they are waited for.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from tiercel import runtime
from tiercel.bench.case import Case
from tiercel.bench.operands import Operands, empty_aligned, make_operands
from tiercel.bench.optional import require
from tiercel.bench.timing import (
    Spread,
    error_of_median,
    interleave,
    paired_spreads,
    plan_turn,
    take_turn,
    warm_up,
)
from tiercel.planner.choose import make_plan
from tiercel.planner.machine import Machine
from tiercel.planner.plan import Candidate, Plan
from tiercel.planner.problem import Problem
from tiercel.planner.winners import Measured
from tiercel.targets import vendor

#: Seconds after which the threads of NumPy's BLAS no longer spin.
SPIN = 0.1

#: Rounds go on until the median of every candidate is known to this share (its standard error), but
#: for at most so many times the seconds that were asked for.
KNOWN, MOST_TIMES = 0.01, 3

#: Candidates predicted to take longer than this many times the fastest are not worth measuring.
HOPELESS = 1.25


def machine(dtype: str) -> Machine:
    """The profile of this machine for a dtype."""
    return runtime.machine((dtype,))


def measure_machine(dtypes: tuple[str, ...]) -> Machine:
    """The profile, measured now."""
    return runtime.measure_again(dtypes)


def predicted_plan(problem: Problem) -> Plan:
    """What the cost model chooses here, whatever was measured before."""
    return make_plan(problem, machine(problem.compute))


def promising(plan: Plan, hopeless: float = HOPELESS) -> list[Candidate]:
    """The vendor's product, the choice, and allowed candidates that might turn out the fastest."""
    limit = hopeless * min(c.seconds for c in plan.candidates if not c.rejected)
    return [
        c
        for c in plan.candidates
        if c.algorithm in ("vendor", plan.chosen.algorithm)
        or (not c.rejected and c.recipe is not None and c.seconds <= limit)
    ]


def measure(
    plan: Plan,
    candidates: Collection[Candidate],
    *,
    seconds: float,
    seed: int = 0,
    on_round: Callable[[int], None] = lambda number: None,
) -> dict[str, float]:
    """Median seconds by algorithm, over at least three rounds; ``seconds`` if nothing disturbs.

    What slows down a whole round counts for none of the candidates. One whose guard refuses the
    operands (normal numbers) is left out.
    Raises ``TiercelRuntimeError`` for bfloat16 where the package ml_dtypes is missing.
    """
    operands = _operands(plan.problem, seed)
    players = {}
    with threadpool_limits(plan.problem.threads, user_api="blas"):
        for candidate in candidates:
            call = _call(plan, candidate, operands)
            if call is not None:
                players[candidate.algorithm] = _player(call, candidate, plan.problem.threads)
        return known_times(players, seconds=seconds, seed=seed, on_round=on_round)


def known_times(
    players: Mapping[str, Callable[[], float]],
    *,
    seconds: float,
    seed: int = 0,
    on_round: Callable[[int], None] = lambda number: None,
) -> dict[str, float]:
    """Median seconds of players in turns, until all are known or ``MOST_TIMES`` ``seconds`` passed.

    What slows down a whole round counts for none of them.
    """
    times: dict[str, list[float]] = {name: [] for name in players}
    found: dict[str, Spread] = {}
    for attempt in range(MOST_TIMES):
        more = interleave(
            players,
            deadline=time.monotonic() + seconds,
            order=random.Random(seed + attempt),
            on_round=on_round,
        )
        for name, values in more.items():
            times[name] += values
        found = paired_spreads(times)
        if _error(found, len(next(iter(times.values())))) < KNOWN:
            break
    return {name: s.median for name, s in found.items()}


def _error(spreads: Mapping[str, Spread], rounds: int) -> float:
    """Largest standard error of a median, relative to it."""
    return max(error_of_median(s, rounds) / s.median for s in spreads.values())


def measured(plan: Plan, seconds: dict[str, float]) -> Measured:
    """The record of a measurement; ``plan`` is the cost model's."""
    p = plan.problem
    known = [c for c in plan.candidates if c.algorithm in seconds]
    return Measured(
        p.M, p.N, p.K, p.dtype, p.layout_a, p.layout_b, p.static_b, p.threads,
        planned=plan.chosen.algorithm, seconds=seconds,
        predicted={c.algorithm: c.seconds for c in known},
        workspace={c.algorithm: c.workspace for c in known},
        fringes={c.algorithm: c.fringe for c in known if c.fringe},
    )  # fmt: skip


def problem_of(case: Case) -> Problem:
    """What the planner is asked about a benchmark case."""
    return Problem(
        case.m, case.n, case.k, case.dtype, case.layout_a, case.layout_b,
        static_b=case.static_b, threads=case.threads,
    )  # fmt: skip


def _operands(problem: Problem, seed: int) -> Operands:
    p = problem
    if p.dtype == "bfloat16":
        require("ml_dtypes", "measuring bfloat16")
    dtype = np.dtype(p.dtype)
    made = make_operands(Case(p.M, p.N, p.K, p.compute, p.layout_a, p.layout_b), seed)
    if dtype == p.compute:
        return made
    # astype keeps the layout; complex numbers of one direction take as long as any others
    a, b = made.a.astype(dtype), made.b.astype(dtype)
    if dtype.kind == "c":
        a, b = a * dtype.type(1 - 0.5j), b * dtype.type(0.5 + 1j)
    return Operands(a, b, empty_aligned(p.M, p.N, p.dtype))


def _call(plan: Plan, candidate: Candidate, operands: Operands) -> Callable[[], Any] | None:
    a, b, out = operands.a, operands.b, operands.out
    if candidate.algorithm == "vendor":
        return lambda: vendor.matmul(a, b, out, epilogue=plan.problem.epilogue)
    own = replace(plan, chosen=candidate)
    right = runtime.pack(own, b) if plan.problem.static_b else b
    if not runtime.execute(own, a, right, out, None):
        return None
    return lambda: runtime.execute(own, a, right, out, None)


def _player(call: Callable[[], Any], candidate: Candidate, threads: int) -> Callable[[], float]:
    pause = SPIN if candidate.algorithm == "vendor" and threads > 1 else 0.0
    turn = plan_turn(warm_up(call))
    time.sleep(pause)

    def play() -> float:
        seconds = take_turn(call, turn)
        time.sleep(pause)
        return seconds

    return play
