"""A plan explains itself: a table for people, plain data for programs."""

import json
from dataclasses import replace

import pytest

from tests.planner.machines import BARE, EAGER, MACHINE
from tiercel.planner.choose import make_plan
from tiercel.planner.plan import Plan
from tiercel.planner.problem import Problem

PLANS = [
    make_plan(Problem(1024, 1024, 1024), EAGER),
    make_plan(Problem(64, 64, 64, "complex128", threads=2, accuracy=1.5), MACHINE),
    make_plan(Problem(700, 700, 700, workspace=0, static_b=True), MACHINE),
    make_plan(Problem(700, 700, 700, scheme="strassen2"), MACHINE),
    make_plan(Problem(64, 64, 64, "float16"), BARE),
    make_plan(Problem(640, 640, 640, "bfloat16"), MACHINE),
]


@pytest.mark.parametrize("plan", PLANS)
def test_one_row_a_candidate_and_the_choice_is_marked(plan: Plan):
    head, columns, *rows = str(plan).splitlines()
    assert head.startswith(f"{plan.problem.M} × {plan.problem.N} × {plan.problem.K} ")
    assert columns.split()[0] == "algorithm"
    names = [row.lstrip("→ ").split()[0] for row in rows]
    assert sorted(names) == sorted(c.algorithm for c in plan.candidates)
    (marked,) = (row for row in rows if row.startswith("→"))
    assert marked.split()[1] == plan.chosen.algorithm


@pytest.mark.parametrize("plan", PLANS)
def test_reasons_of_rejection_are_shown(plan: Plan):
    for candidate in plan.candidates:
        assert candidate.rejected in str(plan)


@pytest.mark.parametrize("plan", PLANS)
def test_json_holds_the_choice_and_all_candidates(plan: Plan):
    data = json.loads(json.dumps(plan.to_json(), allow_nan=False))
    assert data["algorithm"] == plan.chosen.algorithm
    assert data["predicted_ms"] == plan.chosen.seconds * 1e3
    assert [c["algorithm"] for c in data["candidates"]] == [c.algorithm for c in plan.candidates]


def test_what_is_not_known_is_not_shown_as_a_figure():
    unmeasured = replace(BARE, notes={"unavailable": "no compiler"})
    (row,) = str(make_plan(Problem(640, 640, 640), unmeasured)).splitlines()[2:]
    assert row.split() == ["→", "vendor", "–", "–", "–", "0.0", "MiB", "1.00"]
    assert str(unmeasured) == "products are NumPy's: no compiler"
    (row,) = (line for line in str(PLANS[-1]).splitlines() if "strassen3" in line)
    assert row.split()[1:4] == ["–", "–", "–"]


def test_json_says_none_for_what_cannot_run():
    data = {c["algorithm"]: c for c in PLANS[-1].to_json()["candidates"]}
    assert data["strassen3"]["predicted_ms"] is None
    assert data["strassen3"]["rejected"] == "no kernel for bfloat16"
    assert data["strassen2"]["predicted_ms"] > 0


def test_refused_data_run_the_best_classical_candidate():
    for plan in PLANS:
        safe = plan.classical()
        assert safe.chosen.algorithm in ("vendor", "classical")
        assert safe.chosen.seconds <= plan.candidates[0].seconds
    assert PLANS[0].classical().chosen.algorithm == "classical"
    assert PLANS[2].classical().chosen.algorithm == "vendor"
