"""Measured products as the planner of today would plan them, to judge a new cost model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from tiercel.bench.layers import layer_cases
from tiercel.bench.regret import Kind
from tiercel.bench.tuned import Profile
from tiercel.planner import choose, gpu, machine
from tiercel.planner.gpu import GpuMachine
from tiercel.planner.machine import Machine
from tiercel.planner.plan import Plan
from tiercel.planner.problem import Problem
from tiercel.planner.winners import Measured


def replanned(measured: Iterable[Measured], profile: Profile) -> list[Measured]:
    """The measurements with today's choices and predictions for the machine they were made on.

    Where a profile is shipped, a GPU's is that one, and a CPU's if it was when they were made.
    Products whose choice of today was not measured are left out: nothing is known of it.
    """
    profile = _of_today(profile)
    found = []
    for m in measured:
        plan = plan_of(m, profile)
        name, fringe = plan.chosen.algorithm, plan.chosen.fringe
        if name in m.seconds and fringe == m.fringes.get(name, 0):
            predicted = {c.algorithm: c.seconds for c in plan.candidates}
            kept = {name: predicted.get(name, m.predicted[name]) for name in m.seconds}
            found.append(replace(m, planned=name, predicted=kept))
    return found


def grid_gain(profile: Profile, kind: Kind, divisor: int) -> tuple[int, float]:
    """Products of the whole grid of ``bench/layers.py``, and the mean gain predicted over them.

    ``kind``: dtype, whether B is packed, threads. B is stored as a linear layer's weight is.
    """
    dtype, static_b, threads = kind
    profile = _of_today(profile)
    gains = []
    for case in layer_cases(divisor):
        problem = Problem(
            case.m, case.n, case.k, dtype, layout_b="col", static_b=static_b, threads=threads
        )
        plan = _made(problem, profile)
        gains.append(plan.vendor.seconds / plan.chosen.seconds - 1)
    return len(gains), float(np.mean(gains))


def _of_today(profile: Profile) -> Profile:
    if isinstance(profile, GpuMachine):
        return replace(gpu.shipped(profile.name) or profile, memory=profile.memory)
    if profile.measured:
        return profile
    return machine.shipped(profile.kind, next(iter(profile.rates))) or profile


def plan_of(m: Measured, profile: Profile) -> Plan:
    """The plan that the cost model makes for a measured product."""
    problem = Problem(m.M, m.N, m.K, m.dtype, m.layout_a, m.layout_b,
                      static_b=m.static_b, threads=m.threads)  # fmt: skip
    return _made(problem, profile)


def _made(problem: Problem, profile: Profile) -> Plan:
    if isinstance(profile, Machine):
        return choose.make_plan(problem, profile)
    return gpu.make_plan(problem, profile)
