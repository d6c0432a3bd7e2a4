"""What ran is counted by algorithm, and each thread knows its last plan."""

import threading
from dataclasses import replace

import numpy as np
import pytest

import tiercel
from tests.planner.machines import EAGER
from tiercel import counters
from tiercel.lower.program import lower
from tiercel.planner.choose import make_plan
from tiercel.planner.problem import Problem
from tiercel.schemes import get

PLAN = make_plan(Problem(1024, 1024, 1024, scheme="strassen"), EAGER)


@pytest.fixture(autouse=True)
def fresh():
    counters.stats(reset=True)
    yield
    counters.stats(reset=True)


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def test_calls_seconds_and_savings_add_up():
    a = normal(400, 400)
    for _ in range(3):
        tiercel.matmul(a, a, scheme="strassen")
    done = tiercel.stats()["strassen"]
    assert (done.calls, done.refused, done.untimed) == (3, 0, 0)
    assert done.multiplications_saved == 3 * 400**3 // 8
    assert 0 < done.seconds < 60


def test_a_refused_call_is_counted_for_what_ran_instead():
    a = normal(400, 400)
    a[0, 0] = np.inf
    with pytest.raises(tiercel.TiercelRuntimeError):
        tiercel.matmul(a, a, scheme="strassen")
    done = tiercel.stats()["strassen"]
    assert (done.calls, done.refused, done.multiplications_saved) == (0, 1, 0)


def test_the_last_plan_is_each_threads_own():
    counters.record(PLAN, 1.0)
    seen = []
    other = threading.Thread(target=lambda: seen.append(tiercel.last_plan()))
    other.start()
    other.join()
    assert seen == [None]
    assert tiercel.last_plan() is PLAN


def test_the_last_plan_is_the_one_that_ran():
    a = normal(400, 400)
    tiercel.matmul(a, a, scheme="strassen2")
    plan = tiercel.last_plan()
    assert plan is not None
    assert plan.chosen.algorithm == "strassen2"
    assert (plan.problem.M, plan.problem.dtype) == (400, "float32")


def test_threads_lose_no_count():
    def work() -> None:
        for _ in range(2000):
            counters.record(PLAN, 0.5, 7)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done = counters.stats(reset=True)["strassen"]
    assert done == counters.Count(8000, 4000.0, 56000)
    assert counters.stats() == {}


@pytest.mark.parametrize("is_complex", [False, True])
def test_savings_of_several_levels_multiply(is_complex: bool):
    recipe = PLAN.chosen.recipe
    assert recipe is not None
    inner, outer = lower(get("strassen2"), is_complex=is_complex), lower(get("strassen"))
    nested = replace(recipe, program=inner, outer=outer)
    classical = 1024**3 * (4 if is_complex else 1)
    share = (7 / 8) ** 3 * (3 / 4 if is_complex else 1)
    assert nested.multiplications_saved == round(classical * (1 - share))
