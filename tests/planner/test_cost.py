"""Predicted times: positive, growing with the work, and shrinking with what is already done."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.planner.machines import MACHINE, with_rates
from tiercel.planner.candidates import algorithms, blockings
from tiercel.planner.cost import kernel_seconds, vendor_seconds
from tiercel.planner.machine import Machine
from tiercel.planner.problem import DTYPES, Problem

NAMES = ("classical", "strassen", "strassen2", "strassen3")
sizes = st.tuples(*[st.integers(1, 3000)] * 3)
problems = st.builds(
    lambda M, N, K, dtype, threads: Problem(M, N, K, dtype, threads=threads),
    *[st.integers(1, 3000)] * 3, st.sampled_from(list(DTYPES)), st.integers(1, 4),
)  # fmt: skip


def seconds(problem: Problem, name: str, machine: Machine = MACHINE) -> float:
    """The best price of an algorithm over its ways and block sizes."""
    (algorithm,) = algorithms(name, problem.is_complex)
    return min(
        kernel_seconds(problem, machine, outer, inner, block)
        for outer, inner in algorithm.ways
        for block in blockings(problem, machine, outer, inner)
    )


def larger(problem: Problem) -> list[Problem]:
    doubled = ({letter: 2 * getattr(problem, letter)} for letter in "MNK")
    return [replace(problem, **change) for change in doubled]


@settings(max_examples=30, deadline=None)
@given(problem=problems, name=st.sampled_from(NAMES))
def test_own_kernels_cost_more_for_more_work(problem: Problem, name: str):
    # One thread: twice the work may come in tasks that several threads share more evenly.
    problem = replace(problem, threads=1)
    base = seconds(problem, name)
    assert base > 0
    for more in larger(problem):
        assert seconds(more, name) >= 0.999 * base


@given(problem=problems)
def test_vendor_costs_more_for_more_work(problem: Problem):
    base = vendor_seconds(problem, MACHINE)
    assert base > 0
    for more in larger(replace(problem, threads=1)):
        assert vendor_seconds(more, MACHINE) > vendor_seconds(replace(problem, threads=1), MACHINE)


@settings(max_examples=40, deadline=None)
@given(problem=problems, name=st.sampled_from(NAMES))
def test_no_kernel_is_faster_than_its_multiplications(problem: Problem, name: str):
    levels = NAMES.index(name)
    multiplications = (3 / 4 if problem.is_complex else 1) * (7 / 8) ** levels
    peak = MACHINE.rates[problem.compute].peak * problem.threads * 1e9
    assert seconds(problem, name) > multiplications * problem.flops / peak


@settings(max_examples=40, deadline=None)
@given(size=sizes, name=st.sampled_from(NAMES))
def test_a_packed_operand_saves_time(size: tuple[int, int, int], name: str):
    problem = Problem(*size)
    assert seconds(replace(problem, static_b=True), name) <= seconds(problem, name)


@pytest.mark.parametrize("name", NAMES)
def test_columns_cost_more_than_rows(name: str):
    rows = Problem(300, 400, 500)
    for operand in "abc":
        columns = replace(rows, **{f"layout_{operand}": "col"})
        assert seconds(columns, name) > seconds(rows, name)


def test_columns_are_the_vendors_trouble_too():
    machine = with_rates(MACHINE, half_columns=(30, 40))
    rows = Problem(300, 400, 500)
    a, b = replace(rows, layout_a="col"), replace(rows, layout_b="col")
    assert vendor_seconds(rows, machine) == vendor_seconds(rows, MACHINE)
    assert vendor_seconds(a, machine) > vendor_seconds(b, machine) > vendor_seconds(rows, machine)


def test_short_sides_hold_up_more_threads_for_longer():
    machine = with_rates(MACHINE, half_all_cores=(30, 12, 12))
    one, all_cores = (Problem(64, 2000, 2000, threads=t) for t in (1, 4))
    assert vendor_seconds(one, machine) == vendor_seconds(one, MACHINE)
    assert vendor_seconds(all_cores, machine) > 1.15 * vendor_seconds(all_cores, MACHINE)


@pytest.mark.parametrize("name", NAMES)
def test_threads_share_the_work(name: str):
    one, four = (seconds(Problem(2000, 2000, 2000, threads=t), name) for t in (1, 4))
    assert one / 4 < four < one / 2


def test_a_level_pays_off_only_when_large():
    small, large = Problem(128, 128, 128), Problem(4096, 4096, 4096)
    assert seconds(small, "strassen") > seconds(small, "classical")
    assert seconds(large, "strassen") < seconds(large, "classical")


def test_slow_additions_make_a_level_expensive():
    slow = with_rates(MACHINE, sum_a=0.5, sum_b=0.5)
    problem = Problem(1024, 1024, 1024)
    assert seconds(problem, "strassen", slow) > seconds(problem, "strassen")
    assert seconds(problem, "classical", slow) == seconds(problem, "classical")


def test_strided_operands_cost_the_vendor_a_copy():
    plain, strided = Problem(500, 500, 500), Problem(500, 500, 500, layout_a="strided")
    assert vendor_seconds(strided, MACHINE) > vendor_seconds(plain, MACHINE)
