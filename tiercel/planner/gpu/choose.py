"""Problem × GpuMachine → GpuPlan: of the candidates that the budgets allow, take the best.

Everything that is not clearly won stays with the vendor's library.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tiercel.errors import TiercelRuntimeError, TiercelValueError
from tiercel.planner.gpu import cost
from tiercel.planner.gpu.candidates import candidates, insisted
from tiercel.planner.gpu.machine import GpuMachine, GpuRates
from tiercel.planner.gpu.plan import GpuCandidate, GpuPlan
from tiercel.planner.gpu.variants import VENDOR
from tiercel.planner.problem import Problem

#: Predicted gain below which the vendor's routine stays, or the own classical kernel for a scheme.
MARGIN = {"plain": 1.01, "fused": 1.02, "portable": 1.02}

#: Most columns of a 16-bit product that the own classical kernel must win by more: of 32 that it
#: was predicted to win by 1 to 5 %, six took 3 to 29 % longer than cuBLAS's, and the mean gain was
#: 0.4 %.
NARROW, NARROW_MARGIN = 1024, 1.05

#: Most that a call that nothing precedes may take over the vendor's, where a stream of calls gains.
MOST_LOSS = 1.02

#: Microseconds that an isolated call of the own classical kernel may start after the vendor's. Both
#: take 16.5 of the host, measured: this leaves products of less than 0.2 ms to the vendor.
PLAIN_LEAD = 5.0


def make_plan(problem: Problem, machine: GpuMachine) -> GpuPlan:
    """The plan for a problem with M, N, K ≥ 1.

    A named scheme is priced in all variants that this GPU has of it. Raises
    :class:`TiercelValueError` where it does not fit the accuracy or workspace asked for, and
    :class:`TiercelRuntimeError` where the GPU has no kernel for it.

    >>> from tiercel.planner.gpu.machine import required
    >>> plan = make_plan(Problem(8192, 8192, 8192), required("NVIDIA H200"))
    >>> plan.chosen.algorithm, plan.chosen.workspace >> 20
    ('strassen3', 588)
    """
    if problem.dtype not in machine.rates:
        return _unknown(problem, machine)
    vendor = GpuCandidate("vendor", cost.vendor_seconds(problem, machine), 0, 1.0, VENDOR)
    own = [] if problem.scheme == "vendor" else list(candidates(problem, machine))
    shown = machine.only(problem.dtype, problem.compute)
    if insisted(problem):
        chosen = _named(problem, machine, own)
    else:
        chosen = _best(problem, machine, vendor, own)
    return GpuPlan(problem, shown, (vendor, *own), chosen)


def _unknown(problem: Problem, machine: GpuMachine) -> GpuPlan:
    """The plan where nothing is known of a dtype's speed: the vendor's, at no stated time."""
    if insisted(problem):
        _named(problem, machine, [])
    vendor = GpuCandidate("vendor", math.inf, 0, 1.0, VENDOR)
    machine = replace(machine, rates={problem.compute: GpuRates(1.0, ())})
    return GpuPlan(problem, machine, (vendor,), vendor)


def _best(
    problem: Problem, machine: GpuMachine, vendor: GpuCandidate, own: list[GpuCandidate]
) -> GpuCandidate:
    def alone(candidate: GpuCandidate) -> float:
        """Seconds of an isolated call; a packed weight is a model's, whose calls are a stream."""
        if problem.static_b:
            return candidate.seconds
        waits = {"plain": PLAIN_LEAD, "fused": machine.prepare, "portable": machine.lead}
        return candidate.seconds + waits[candidate.variant.kind] * 1e-6

    harmless = [c for c in own if not c.rejected and alone(c) <= MOST_LOSS * vendor.seconds]

    narrow = problem.N <= NARROW and problem.itemsize == 2 and problem.epilogue is None
    margin = {**MARGIN, "plain": NARROW_MARGIN} if narrow else MARGIN

    def handicapped(candidate: GpuCandidate) -> float:
        return candidate.seconds * margin[candidate.variant.kind]

    best = min(harmless, key=handicapped, default=vendor)
    return best if best is not vendor and handicapped(best) < vendor.seconds else vendor


def _named(problem: Problem, machine: GpuMachine, own: list[GpuCandidate]) -> GpuCandidate:
    """The best variant of the algorithm that was asked for; the reason where there is none."""
    allowed = [c for c in own if not c.rejected]
    if allowed:
        return min(allowed, key=lambda c: c.seconds)
    if not own:
        raise TiercelRuntimeError(
            f"scheme={problem.scheme!r} cannot run for {problem.dtype} on {machine.name}: "
            f"{machine.notes.get('unavailable', 'it has no kernel of ours for that')}; leave "
            "scheme out to use the vendor's routine"
        )
    raise TiercelValueError(
        f"scheme={problem.scheme!r} on {machine.name}: " + "; ".join(c.rejected for c in own)
    )
