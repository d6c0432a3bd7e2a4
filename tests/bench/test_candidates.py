"""Candidates of a plan are run in turns; those that cannot win, or may not run, are left out."""

import math
from dataclasses import replace

import pytest

from tests.planner.machines import EAGER, MACHINE
from tests.targets.cpu.recipes import tile
from tiercel.bench import candidates
from tiercel.bench.case import Case
from tiercel.planner.choose import make_plan
from tiercel.planner.problem import Problem

HERE = replace(EAGER, tiles={dtype: tile(dtype) for dtype in ("float32", "float64")})


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "float16", "bfloat16"])
@pytest.mark.parametrize("static_b", [False, True])
def test_each_candidate_gets_a_median(dtype: str, static_b: bool):
    problem = Problem(200, 210, 220, dtype, static_b=static_b, layout_b="col")
    plan = make_plan(problem, HERE)
    chosen = [c for c in plan.candidates if c.algorithm in ("vendor", "classical", "strassen")]
    times = candidates.measure(plan, chosen, seconds=0.01)
    assert times.keys() == {c.algorithm for c in chosen}
    assert all(0 < seconds < 10 for seconds in times.values())
    made = candidates.measured(plan, times)
    assert made.predicted.keys() == made.workspace.keys() == times.keys()


def test_hopeless_and_forbidden_candidates_are_not_promising():
    names = {c.algorithm for c in candidates.promising(make_plan(Problem(128, 128, 600), MACHINE))}
    assert "vendor" in names
    assert "strassen3" not in names
    classical = make_plan(Problem(1024, 1024, 1024, accuracy="classical"), EAGER)
    assert {c.algorithm for c in candidates.promising(classical)} == {"vendor", "classical"}
    for plan in (make_plan(Problem(1024, 1024, 1024), EAGER), classical):
        assert plan.chosen in candidates.promising(plan)
        assert all(math.isfinite(c.seconds) for c in candidates.promising(plan))


def test_a_case_becomes_a_problem():
    case = Case(3, 4, 5, "float64", "col", "row", static_b=True, threads=2)
    problem = Problem(3, 4, 5, "float64", "col", "row", static_b=True, threads=2)
    assert candidates.problem_of(case) == problem
