"""Problem × Machine → Plan: price every candidate, drop what the budgets forbid, take the best."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from tiercel.errors import TiercelRuntimeError, TiercelValueError
from tiercel.lower.blocking import Blocking, ceil_div
from tiercel.lower.program import Program
from tiercel.lower.recipe import Recipe
from tiercel.planner import accuracy
from tiercel.planner.candidates import CROWD, Algorithm, algorithms, blockings, workspace_cap
from tiercel.planner.cost import kernel_seconds, vendor_seconds
from tiercel.planner.machine import Machine
from tiercel.planner.plan import Candidate, Plan
from tiercel.planner.problem import Problem
from tiercel.schemes import Scheme

#: What replaces NumPy's product must be predicted to gain this much over the shortest side: 1.6 %
#: of 128. Own kernels take what is predicted or 1 to 4 % less, margin enough where all sides are
#: long; what NumPy's product takes is known the less the thinner it is (``cost.FULL``). On several
#: threads it must gain so much more: 2361 × 481 × 1893 on two, predicted 1.01, measured 0.97.
THIN_MARGIN, THREADED_MARGIN = 2.0, 0.01

#: What a scheme must gain beside that, or over a more accurate own algorithm; and over the
#: classical one with so many threads that they share caches and memory, where its sums cost more
#: than predicted: float32, 4096³, 16 threads: predicted 1.01 × the speed of the classical kernel,
#: measured 0.98. At 8192³ two levels pay: predicted 1.08, measured 1.05 and 1.12.
SCHEME_MARGIN, CROWD_MARGIN = 1.005, 1.04

#: Shortest segment of K that a scheme sums over: with fewer elements the 1-norms of ordinary data
#: scatter so much that the run-time guard (``accuracy.SCALE_LIMIT``) would refuse them.
SHORTEST_SEGMENT = 64

#: Up to this depth a product is mostly about C, and NumPy's time per element of it, measured at a
#: depth of 32, is put too high: 671 × 2532 × 23 takes 0.66 of what is predicted, and 1.27 times as
#: long on the own kernel. The same with few columns where K is short: 3458 × 9 × 186 has 0.72 times
#: NumPy's speed, 2011 × 14 × 130 0.92 (but 3793 × 9 × 1001 1.19). Halves, which NumPy has no BLAS
#: for, are not left.
SHALLOW, NARROW, SHALLOW_AND_NARROW = 32, 16, 256


def make_plan(problem: Problem, machine: Machine) -> Plan:
    """The plan for a problem with M, N, K ≥ 1.

    Raises :class:`TiercelValueError` when a named scheme does not fit the accuracy or workspace
    asked for, and :class:`TiercelRuntimeError` when this machine has no kernel for it.
    """
    vendor = Candidate("vendor", vendor_seconds(problem, machine), 0, 1.0)
    if problem.scheme == "vendor":
        return Plan(problem, machine, (vendor,), vendor)
    if not machine.tiles:
        if problem.scheme is not None:
            reason = machine.notes.get("unavailable", "no kernels on this machine")
            raise TiercelRuntimeError(
                f"scheme={problem.scheme!r} cannot run: {reason}; leave scheme out to use NumPy"
            )
        return Plan(problem, machine, (vendor,), vendor)
    own = [
        _candidate(problem, machine, algorithm)
        for algorithm in algorithms(problem.scheme, problem.is_complex)
    ]
    if problem.scheme is not None:
        chosen = own[0]
        if chosen.rejected and not chosen.rejected.startswith("K "):
            raise TiercelValueError(f"scheme={problem.scheme!r}: {chosen.rejected}")
        if not problem.must_use and vendor.seconds * _worth(problem) < chosen.seconds:
            chosen = vendor
        return Plan(problem, machine, (vendor, *own), chosen)
    best, worth = vendor, _worth(problem)
    for candidate in own:
        margin = worth if best is vendor else 1.0
        if candidate.algorithm != "classical":
            crowded = best.algorithm == "classical" and problem.threads >= CROWD
            margin *= CROWD_MARGIN if crowded else SCHEME_MARGIN
        if not candidate.rejected and candidate.seconds * margin < best.seconds:
            best = candidate
    return Plan(problem, machine, (vendor, *own), best)


def _worth(problem: Problem) -> float:
    """Predicted gain from which NumPy's product is replaced."""
    threaded = THREADED_MARGIN if problem.threads > 1 else 0.0
    return 1 + threaded + THIN_MARGIN / min(problem.M, problem.N, problem.K)


#: Columns beyond a multiple of the blocks are left to NumPy if they are at most this share of one:
#: padding them would cost more than a thin product of their own.
FRINGE = 0.3

#: After a product of its own NumPy's other threads go on spinning, and the next call has to share
#: the cores with them (1457 × 1029 × 356, two threads: twice the time of padding). So several
#: threads leave columns to NumPy only where each has that many operations, half a second of them.
LONG = 5e10


def _fringe(problem: Problem, machine: Machine, scheme: Scheme | None) -> int:
    """Columns of C that are cut off before blocking: 4099 is 4096 + 3, not 33 blocks of 128."""
    if scheme is None or problem.static_b:
        return 0
    if problem.threads > 1 and problem.flops < LONG * problem.threads:
        return 0
    block = scheme.n * machine.tiles[problem.compute].nr
    rest = problem.N % block
    return rest if 16 * block <= problem.N and rest <= FRINGE * block else 0


def _candidate(problem: Problem, machine: Machine, algorithm: Algorithm) -> Candidate:
    """The best-priced way to run one algorithm, or why it may not run."""
    fringe = _fringe(problem, machine, algorithm.scheme)
    problem = replace(problem, N=problem.N - fringe)
    growth = accuracy.growth(algorithm.scheme, problem.is_complex)
    cap = workspace_cap(problem)
    priced = [*_priced(problem, machine, algorithm)]
    if _may_swap(problem, algorithm) and not fringe:
        priced += _priced(problem.swapped, machine, algorithm)
    if not priced:
        return Candidate(
            algorithm.name, math.inf, 0, growth, rejected=f"no kernel for {problem.dtype}"
        )
    fitting = [p for p in priced if p.memory <= cap]
    best = min(fitting or priced, key=lambda p: (p.seconds, p.memory))
    memory, rejected = best.memory, ""
    limit = accuracy.bound(problem.accuracy)
    if growth > limit + 1e-9:
        rejected = f"error growth {growth:.1f} over the allowed {limit:g}"
    elif problem.storage == problem.compute and (why := _numpys_own(problem)):
        rejected = why
    elif algorithm.scheme and problem.K // algorithm.scheme.k < SHORTEST_SEGMENT:
        rejected = (
            f"K {problem.K} is too short to judge the scales of {algorithm.scheme.k} segments"
        )
    elif not fitting:
        memory = min(p.memory for p in priced)
        rejected = f"needs {memory / 2**20:.1f} MiB, allowed {cap / 2**20:.1f}"
    recipe = _recipe(best, algorithm.scheme, swapped=best.problem is not problem)
    thin = vendor_seconds(replace(problem, N=fringe), machine) if fringe else 0.0
    return Candidate(algorithm.name, best.seconds + thin, memory, growth, recipe, rejected, fringe)


def _numpys_own(problem: Problem) -> str:
    """Why a shallow product is left to NumPy, empty if it is not."""
    deepest = SHALLOW_AND_NARROW if problem.N <= NARROW else SHALLOW
    shallow = deepest >= problem.K
    return f"K {problem.K} is left to NumPy, up to {deepest}" if shallow else ""


def _may_swap(problem: Problem, algorithm: Algorithm) -> bool:
    """Whether Cᵀ = Bᵀ Aᵀ is a way to compute the product.

    It pays where A has few rows: the larger operand is then staged block by block in cache, and
    not packed into memory and read again. (26 × 3833 × 2172: 1.18 × NumPy's speed, else 0.68.) A
    named scheme keeps its grid, a bias its rows.
    """
    square = algorithm.scheme is None or algorithm.scheme.m == algorithm.scheme.n
    return square and problem.M < problem.N and not problem.static_b and not problem.bias


def _priced(problem: Problem, machine: Machine, algorithm: Algorithm) -> Iterator[Priced]:
    for outer, inner in algorithm.ways:
        if outer and problem.storage != problem.compute:
            continue  # C is not a place to add up halves
        for block in blockings(problem, machine, outer, inner):
            seconds = kernel_seconds(problem, machine, outer, inner, block)
            yield Priced(seconds, _memory(problem, outer, block), problem, outer, inner, block)


class Priced(NamedTuple):
    """One way and block size of an algorithm, with its predicted time and memory."""

    seconds: float
    memory: int
    problem: Problem
    outer: Program | None
    inner: Program
    blocking: Blocking


def _memory(problem: Problem, outer: Program | None, block: Blocking) -> int:
    packed = block.packed
    if problem.static_b:
        K = ceil_div(problem.K, outer.k) if outer else problem.K
        steps = ceil_div(K, block.k_span) * (len(outer.products) if outer else 1)
        packed = block.packed_pass * steps
    return packed + block.packed_a + problem.threads * block.private


def _recipe(best: Priced, scheme: Scheme | None, *, swapped: bool) -> Recipe:
    problem, inner, block = best.problem, best.inner, best.blocking
    segments = ceil_div(problem.K, block.kc) * inner.k
    return Recipe(
        M=problem.M,
        N=problem.N,
        K=problem.K,
        program=inner,
        blocking=block,
        compute=problem.compute,
        storage=problem.storage,
        activation=problem.epilogue,
        threads=problem.threads,
        guard=accuracy.guard(scheme, problem.is_complex, problem.compute, segments),
        outer=best.outer,
        swapped=swapped,
    )
