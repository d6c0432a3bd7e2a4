"""Measures the candidates of a plan on a GPU, in turns, as a stream of products takes them.

A turn is a CUDA graph of some calls: Python's time for the launches is left out, the time between
launches is not. Operands are windows of one buffer of normal numbers, enough of them in turn to
exceed the L2 cache.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import cycle, islice
from typing import NamedTuple

import torch

from tiercel.bench.candidates import known_times
from tiercel.bench.case import Case
from tiercel.errors import TiercelError, TiercelRuntimeError
from tiercel.frontends.torch.cuda import fused, run
from tiercel.frontends.torch.cuda import packed as cuda_packed
from tiercel.frontends.torch.cuda.machine import machine_for
from tiercel.frontends.torch.cuda.packed import Packed
from tiercel.frontends.torch.engine import Request
from tiercel.options import Options
from tiercel.planner.gpu import GpuCandidate, GpuMachine, GpuPlan, make_plan
from tiercel.planner.problem import Problem

Call = Callable[[], object]

#: Seconds that the calls of one turn are predicted to take, and most of them.
TURN, MOST_CALLS = 0.01, 64

#: As in ``candidates.py``: predictions for a GPU are closer (19 of 20 within 3 %), and there are
#: more candidates.
HOPELESS = 1.12

#: Seconds of turns before the first that counts. Power sets the clock of a GPU in use: an H200 that
#: has rested multiplies bfloat16 at 795 TFLOP/s for 60 ms, from 80 ms on at 660 to 690.
HEAT = 0.1

#: Calls as long as this need no second call to warm up: seconds.
LONG = 0.01

#: Most operand sets of one product; together they are twice the L2 cache unless that takes more.
MOST_SETS = 8

#: Windows begin at multiples of so many elements: 128 bytes at least, in 16 bits.
ALIGN = 64

#: Normal numbers made at once, of which operands are windows: 1.6 GiB in float32.
NUMBERS = 400 << 20

log = logging.getLogger("tiercel")


class Operands(NamedTuple):
    """A (M, K) and B (K, N) of one call, and where C goes."""

    a: torch.Tensor
    b: torch.Tensor
    out: torch.Tensor


def require_device(name: str | None = None) -> None:
    """Raises ``TiercelRuntimeError`` on a machine without a CUDA device (of that name)."""
    here = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    if here is None or name not in (None, here):
        raise TiercelRuntimeError(
            f"products are measured on {name or 'a GPU'}, and this machine has {here or 'none'}; "
            "`tiercel explain --device NAME` without --measure predicts"
        )


def machine(dtype: str) -> GpuMachine:
    """The profile of this machine's GPU for a dtype: shipped, measured before or measured now."""
    return machine_for(torch.cuda.current_device(), _torch_dtype(dtype))


def _torch_dtype(dtype: str) -> torch.dtype:
    return torch.float32 if dtype == "tfloat32" else getattr(torch, dtype)


def measure_machine(dtypes: Sequence[str]) -> GpuMachine:
    """What is known of this GPU; a shipped profile is not measured again."""
    known = [machine(dtype) for dtype in dtypes]
    rates = {dtype: x for m in known for dtype, x in m.rates.items() if dtype in dtypes}
    return replace(known[0], rates=rates)


def predicted_plan(problem: Problem) -> GpuPlan:
    """What the cost model chooses here, whatever was measured before."""
    return make_plan(problem, machine(problem.dtype))


def problem_of(case: Case) -> Problem:
    """What the planner is asked about a benchmark case."""
    return Problem(
        case.m, case.n, case.k, case.dtype, case.layout_a, case.layout_b, static_b=case.static_b
    )


def measure(
    plan: GpuPlan, candidates: Collection[GpuCandidate], *, seconds: float, seed: int = 0
) -> dict[str, float]:
    """Median seconds by algorithm, over at least three rounds; ``seconds`` if nothing disturbs.

    What slows down a whole round counts for none of the candidates. B is packed before where the
    problem says that it is static. What does not run is left out, and logged as a warning.
    """
    with _bits(plan.problem):
        return _measured(plan, candidates, seconds, seed)


@contextmanager
def _bits(problem: Problem) -> Iterator[None]:
    """torch multiplies float32 in TF32 meanwhile, or does not, as a problem says."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if problem.dtype == "tfloat32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _measured(
    plan: GpuPlan, candidates: Collection[GpuCandidate], seconds: float, seed: int
) -> dict[str, float]:
    operands = _operands(plan.problem, seed)
    players, kept = {}, []
    for candidate in candidates:
        try:
            calls = [_call(plan, candidate, x) for x in operands]
            players[candidate.algorithm] = _player(calls, candidate.seconds)
            kept.append(calls)  # a graph does not keep the memory of what it replays
        except (TiercelError, torch.OutOfMemoryError) as reason:
            log.warning("not measured: %s of %s: %s", candidate.algorithm, plan.problem, reason)
    _heat(players.values())
    times = known_times(players, seconds=seconds, seed=seed)
    players.clear()
    kept.clear()
    torch.cuda.empty_cache()  # what the graphs have held
    return times


def _heat(players: Collection[Callable[[], float]]) -> None:
    """Play turns that do not count for ``HEAT`` seconds, at least one of each."""
    end = time.monotonic() + HEAT
    while players:
        for player in players:
            player()
        if time.monotonic() >= end:
            return


def _operands(problem: Problem, seed: int) -> list[Operands]:
    p = problem
    dtype, size = _torch_dtype(p.dtype), max(p.M * p.K, p.K * p.N)
    cache_bytes = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
    sets = min(MOST_SETS, -(-2 * cache_bytes // p.operand_bytes))
    source, numbers = random.Random(seed), _normal(dtype, size)
    out = torch.empty(p.M, p.N, dtype=dtype, device="cuda")
    return [
        Operands(
            _window(numbers, source, p.M, p.K, p.layout_a),
            _window(numbers, source, p.K, p.N, p.layout_b),
            out,
        )
        for _ in range(sets)
    ]


_buffer: dict[torch.dtype, torch.Tensor] = {}


def _normal(dtype: torch.dtype, size: int) -> torch.Tensor:
    """At least ``size`` normal numbers, made once for all products of a dtype."""
    found = _buffer.get(dtype)
    if found is None or len(found) < 2 * size:
        _buffer.clear()
        found = torch.empty(max(NUMBERS, 2 * size), dtype=dtype, device="cuda").normal_()
        _buffer[dtype] = found
    return found


def _window(
    numbers: torch.Tensor, source: random.Random, rows: int, cols: int, layout: str
) -> torch.Tensor:
    start = ALIGN * source.randrange((len(numbers) - rows * cols) // ALIGN)
    window = numbers[start : start + rows * cols]
    return window.view(rows, cols) if layout == "row" else window.view(cols, rows).t()


def _call(plan: GpuPlan, candidate: GpuCandidate, x: Operands) -> Call:
    if candidate.algorithm == "vendor":
        return lambda: torch.mm(x.a, x.b, out=x.out)
    # A named scheme does not give way to torch's product.
    options, packed = Options(scheme=candidate.algorithm), None
    if plan.problem.static_b and candidate.variant.schemes:
        packed = _packed(x.b, candidate)
    own, request = replace(plan, chosen=candidate), Request(x.a, x.b, None, options, packed)
    return lambda: run.run(own, request, x.out)


def _packed(b: torch.Tensor, candidate: GpuCandidate) -> Packed:
    """B packed for the candidate's own kernel: another one may have a scheme of the same name."""
    name, variant = candidate.algorithm, candidate.variant
    in_kernel = variant.kind == "fused"
    packed = fused.pack(b, name) if in_kernel else cuda_packed.pack(b, name, variant)
    if packed.panels is None:
        raise TiercelRuntimeError(f"B has no packed form for {name}")
    return packed


def _player(calls: Sequence[Call], predicted: float) -> Callable[[], float]:
    """Plays a turn of the calls, one after the other; returns seconds per call."""
    for call in calls:  # the first time compiles, the second finds what it needs
        call()
        if predicted < LONG:
            call()
    count = min(MOST_CALLS, max(1, round(TURN / predicted)))
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in islice(cycle(calls), count):
            call()
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def play() -> float:
        start.record()
        graph.replay()
        stop.record()
        stop.synchronize()
        return start.elapsed_time(stop) / 1e3 / count

    return play
