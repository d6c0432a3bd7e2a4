"""Measured candidates outrank predicted ones, within the budgets, and survive the disk."""

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.planner.machines import EAGER
from tiercel import cache
from tiercel.errors import TiercelValueError
from tiercel.planner import winners
from tiercel.planner.choose import make_plan
from tiercel.planner.problem import Problem
from tiercel.planner.winners import Measured

PROBLEM = Problem(1024, 1024, 1024)


def measurement(problem: Problem = PROBLEM, **seconds: float) -> Measured:
    plan = make_plan(problem, EAGER)
    times = {"vendor": 5.0, "classical": 4.0, "strassen": 3.0, "strassen3": 2.0, **seconds}
    predicted = {c.algorithm: c.seconds for c in plan.candidates if c.algorithm in times}
    p = problem
    return Measured(
        p.M, p.N, p.K, p.dtype, p.layout_a, p.layout_b, p.static_b, p.threads,
        plan.chosen.algorithm, times, predicted, dict.fromkeys(times, 0),
    )  # fmt: skip


def chosen(problem: Problem) -> str:
    return winners.applied(make_plan(problem, EAGER)).chosen.algorithm


@pytest.fixture(autouse=True)
def fresh(empty_cache: Path):
    winners.forget()
    yield
    winners.forget()


def test_the_model_decides_until_something_is_measured():
    assert chosen(PROBLEM) == "strassen3"


def test_the_fastest_measured_candidate_is_chosen():
    winners.add("made-up", [measurement(strassen=1.0)])
    assert chosen(PROBLEM) == "strassen"
    assert chosen(replace(PROBLEM, epilogue="relu", bias=True)) == "strassen"


@pytest.mark.parametrize("change", [{"M": 1025}, {"threads": 2}, {"static_b": True},
                                    {"dtype": "float64"}, {"layout_b": "col"}])  # fmt: skip
def test_other_products_are_not_concerned(change: dict):
    winners.add("made-up", [measurement(strassen=1.0)])
    other = replace(PROBLEM, **change)
    assert chosen(other) == make_plan(other, EAGER).chosen.algorithm


def test_a_hair_does_not_change_the_choice():
    winners.add("made-up", [measurement(strassen=1.99, strassen3=2.0)])
    assert chosen(PROBLEM) == "strassen3"


def test_budgets_still_hold():
    winners.add("made-up", [measurement(strassen=1.0)])
    assert chosen(replace(PROBLEM, accuracy="classical")) == "classical"
    assert chosen(replace(PROBLEM, workspace=0)) == "vendor"


def test_a_named_scheme_is_obeyed():
    winners.add("made-up", [measurement(strassen=1.0)])
    assert chosen(replace(PROBLEM, scheme="classical")) == "classical"


def test_measurements_are_merged_by_product():
    winners.add("made-up", [measurement(strassen=1.0)])
    winners.add("made-up", [measurement(replace(PROBLEM, M=512)), measurement(vendor=0.5)])
    known = winners.known("made-up")
    assert len(known) == 2
    assert known[winners.key_of(PROBLEM)].best == "vendor"


def test_entries_of_another_version_are_ignored():
    cache.store(winners.KIND, "made-up", b'[{"M": 1}]')
    assert winners.known("made-up") == {}
    assert chosen(PROBLEM) == "strassen3"


def test_round_trip():
    made = measurement()
    assert Measured.from_data(asdict(made)) == made


@pytest.mark.parametrize("data", [{}, {"M": 1}, {**asdict(measurement()), "seconds": {}}])
def test_anything_else_raises(data: dict):
    with pytest.raises(TiercelValueError, match="tune --export"):
        Measured.from_data(data)


def test_regret_compares_the_choice_with_the_best():
    made = measurement(strassen=1.0)
    assert (made.planned, made.best) == ("strassen3", "strassen")
    assert made.regret == 2.0
    assert made.against_vendor == 0.4
