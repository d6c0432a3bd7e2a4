"""Problem × Machine → Plan: price every candidate, drop what the budgets forbid, take the best."""

from __future__ import annotations

from tiercel.errors import TiercelRuntimeError, TiercelValueError
from tiercel.lower.blocking import Blocking, ceil_div
from tiercel.lower.program import Program, lower
from tiercel.lower.recipe import Recipe
from tiercel.planner import accuracy
from tiercel.planner.candidates import blockings, schemes_for, workspace_cap
from tiercel.planner.cost import kernel_seconds, vendor_seconds
from tiercel.planner.machine import Machine
from tiercel.planner.plan import Candidate, Plan
from tiercel.planner.problem import Problem
from tiercel.schemes import Scheme

#: An own kernel replaces NumPy's only for a predicted gain of this much, and a scheme replaces the
#: own classical kernel likewise: predictions are good to a few percent.
MARGIN = 1.02


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
        _candidate(problem, machine, name, scheme) for name, scheme in schemes_for(problem.scheme)
    ]
    if problem.scheme is not None:
        chosen = own[0]
        if chosen.rejected:
            raise TiercelValueError(f"scheme={problem.scheme!r}: {chosen.rejected}")
        if not problem.must_use and vendor.seconds * MARGIN < chosen.seconds:
            chosen = vendor
        return Plan(problem, machine, (vendor, *own), chosen)
    best = vendor
    for candidate in own:
        if not candidate.rejected and candidate.seconds * MARGIN < best.seconds:
            best = candidate
    return Plan(problem, machine, (vendor, *own), best)


def _candidate(problem: Problem, machine: Machine, name: str, scheme: Scheme | None) -> Candidate:
    """The best-priced way to run one algorithm, or why it may not run."""
    program = lower(scheme, is_complex=problem.is_complex)
    growth = accuracy.growth(scheme, problem.is_complex)
    cap = workspace_cap(problem)
    priced = [
        (kernel_seconds(problem, machine, program, b), _memory(problem, b), b)
        for b in blockings(problem, machine, program)
    ]
    fitting = [p for p in priced if p[1] <= cap]
    seconds, memory, block = min(fitting or priced, key=lambda p: (p[0], p[1]))
    rejected = ""
    if growth > (limit := accuracy.bound(problem.accuracy)) + 1e-9:
        rejected = f"error growth {growth:.1f} over the allowed {limit:g}"
    elif not fitting:
        memory = min(p[1] for p in priced)
        rejected = f"needs {memory / 2**20:.1f} MiB, allowed {cap / 2**20:.1f}"
    recipe = _recipe(problem, program, scheme, block)
    return Candidate(name, seconds, memory, growth, recipe, rejected)


def _memory(problem: Problem, block: Blocking) -> int:
    packed = block.packed_all if problem.static_b else block.packed
    return packed + problem.threads * block.private


def _recipe(
    problem: Problem, program: Program, scheme: Scheme | None, block: Blocking
) -> Recipe:
    segments = ceil_div(problem.K, block.kc) * program.k
    return Recipe(
        M=problem.M,
        N=problem.N,
        K=problem.K,
        program=program,
        blocking=block,
        compute=problem.compute,
        storage=problem.storage,
        activation=problem.epilogue,
        threads=problem.threads,
        guard=accuracy.guard(scheme, problem.is_complex, problem.compute, segments),
    )
