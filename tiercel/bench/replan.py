"""Measured products as the planner of today would plan them, to judge a new cost model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tiercel.bench.tuned import Profile
from tiercel.planner import choose, gpu
from tiercel.planner.gpu import GpuMachine, shipped
from tiercel.planner.machine import Machine
from tiercel.planner.plan import Plan
from tiercel.planner.problem import Problem
from tiercel.planner.winners import Measured


def replanned(measured: Iterable[Measured], profile: Profile) -> list[Measured]:
    """The measurements with today's choices and predictions for the machine they were made on.

    A GPU's profile is the shipped one if there is one. Products whose choice of today was not
    measured are left out: nothing is known of it.
    """
    if isinstance(profile, GpuMachine):
        profile = replace(shipped(profile.name) or profile, memory=profile.memory)
    found = []
    for m in measured:
        plan = plan_of(m, profile)
        if plan.chosen.algorithm in m.seconds:
            predicted = {c.algorithm: c.seconds for c in plan.candidates}
            kept = {name: predicted.get(name, m.predicted[name]) for name in m.seconds}
            found.append(replace(m, planned=plan.chosen.algorithm, predicted=kept))
    return found


def plan_of(m: Measured, profile: Profile) -> Plan:
    """The plan that the cost model makes for a measured product."""
    problem = Problem(m.M, m.N, m.K, m.dtype, m.layout_a, m.layout_b,
                      static_b=m.static_b, threads=m.threads)  # fmt: skip
    if isinstance(profile, Machine):
        return choose.make_plan(problem, profile)
    return gpu.make_plan(problem, profile)
