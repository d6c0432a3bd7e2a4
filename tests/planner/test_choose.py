"""What is chosen, and what the budgets of accuracy and memory forbid."""

import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.planner.machines import BARE, EAGER, MACHINE, with_rates
from tests.targets.cpu.recipes import DTYPES as NUMPY_DTYPES
from tests.targets.cpu.recipes import integers, tile
from tiercel import schemes
from tiercel.errors import TiercelRuntimeError, TiercelValueError
from tiercel.lower.blocking import ceil_div
from tiercel.planner import accuracy
from tiercel.planner.choose import SHORTEST_SEGMENT, make_plan
from tiercel.planner.machine import all_shipped
from tiercel.planner.problem import DTYPES, Problem
from tiercel.targets.cpu import kernel, workspace

N = 1024
TWO_CORES = replace(with_rates(MACHINE, scaling=1.9, memory_scaling=1.8), cores=2)


def chosen(problem: Problem, machine=EAGER) -> str:
    return make_plan(problem, machine).chosen.algorithm


def test_small_products_are_the_vendors_and_large_ones_are_not():
    assert chosen(Problem(64, 64, 64), MACHINE) == "vendor"
    assert chosen(Problem(4096, 4096, 4096), MACHINE).startswith("strassen")


def test_scheme_vendor_is_obeyed_without_candidates():
    plan = make_plan(Problem(N, N, N, scheme="vendor"), EAGER)
    assert plan.chosen.algorithm == "vendor"
    assert len(plan.candidates) == 1


@pytest.mark.parametrize("name", ["classical", "strassen", "strassen2", "strassen3", "laderman"])
def test_a_named_scheme_is_run_even_where_it_is_slow(name: str):
    assert chosen(Problem(500, 500, 500, scheme=name, accuracy="fast"), MACHINE) == name


def test_a_scheme_that_came_with_a_packed_operand_may_be_replaced_by_the_vendor():
    problem = Problem(64, 64, 200, scheme="strassen", must_use=False, static_b=True)
    assert chosen(problem, MACHINE) == "vendor"
    assert chosen(Problem(N, N, N, scheme="strassen", must_use=False), EAGER) == "strassen"


def test_a_scheme_object_is_taken_as_it_is():
    scheme = schemes.get("winograd")
    plan = make_plan(Problem(N, N, N, scheme=scheme), EAGER)
    assert plan.chosen.recipe is not None
    assert (plan.chosen.recipe.program.name, plan.chosen.recipe.outer) == ("winograd", None)


def test_few_rows_are_computed_as_few_columns():
    """The larger operand is not packed into memory: Cᵀ = Bᵀ Aᵀ."""

    def swapped(problem: Problem) -> bool:
        recipe = make_plan(problem, MACHINE).chosen.recipe
        assert recipe is not None
        return recipe.swapped

    few = Problem(26, 3833, 2172, layout_b="col", scheme="classical")
    assert swapped(few)
    for other in ("static_b", "bias"):
        assert not swapped(replace(few, **{other: True}))
    assert not swapped(few.swapped)
    assert not swapped(replace(few, scheme="strassen-2x2x3"))


# --- accuracy -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("wanted", ["classical", "standard", "fast", 1.0, 1.5, 2.0, 3.5, 100.0])
def test_growth_is_within_what_was_asked_for(wanted: str | float, dtype: str):
    plan = make_plan(Problem(4096, 4096, 4096, dtype, accuracy=wanted), EAGER)
    limit = accuracy.bound(wanted)
    assert plan.chosen.growth <= limit
    for candidate in plan.candidates:
        if candidate.growth > limit:
            assert candidate.rejected.startswith(("error growth", "no kernel"))


def test_each_class_allows_more():
    problem = [Problem(4096, 4096, 4096, accuracy=x) for x in ("classical", 2.0, "standard")]
    assert [chosen(p) for p in problem] == ["classical", "strassen", "strassen3"]


def test_classical_means_that_no_scheme_runs():
    assert chosen(Problem(N, N, N, accuracy="classical")) == "classical"
    # Gauss's complex product is a scheme of its own: it loses accuracy, too.
    assert chosen(Problem(N, N, N, "complex64", accuracy="classical")) == "vendor"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"accuracy": "classical"}, r"error growth 2\.0 over the allowed 1"),
        ({"accuracy": 1.2}, r"error growth 2\.0 over the allowed 1\.2"),
        ({"workspace": 0}, r"needs \d+\.\d MiB, allowed 0\.0"),
        ({"workspace": 4096}, r"needs \d+\.\d MiB"),
    ],
)
def test_a_named_scheme_that_does_not_fit_raises(options: dict, reason: str):
    with pytest.raises(TiercelValueError, match=f"scheme='strassen'.*{reason}"):
        make_plan(Problem(N, N, N, scheme="strassen", **options), MACHINE)


@pytest.mark.parametrize(("name", "k"), [("strassen", 2), ("strassen2", 4), ("strassen3", 8)])
def test_no_scheme_sums_over_short_segments(name: str, k: int):
    def rejected(K: int) -> str:
        plan = make_plan(Problem(N, N, K), EAGER)
        (candidate,) = (c for c in plan.candidates if c.algorithm == name)
        return candidate.rejected

    assert "too short" in rejected(SHORTEST_SEGMENT * k - 1)
    assert rejected(SHORTEST_SEGMENT * k) == ""


# --- machines without kernels ---------------------------------------------------------------------


def test_without_kernels_everything_is_the_vendors():
    plan = make_plan(Problem(N, N, N), BARE)
    assert [c.algorithm for c in plan.candidates] == [plan.chosen.algorithm] == ["vendor"]
    assert chosen(Problem(N, N, N, scheme="vendor"), BARE) == "vendor"


@pytest.mark.parametrize("name", ["classical", "strassen"])
def test_without_kernels_a_named_scheme_raises(name: str):
    with pytest.raises(TiercelRuntimeError, match=f"scheme='{name}' cannot run: no compiler"):
        make_plan(Problem(N, N, N, scheme=name), BARE)


# --- memory ---------------------------------------------------------------------------------------


def test_without_memory_it_is_the_vendors():
    plan = make_plan(Problem(N, N, N, workspace=0), EAGER)
    assert plan.chosen.algorithm == "vendor"
    own = [c for c in plan.candidates if c.algorithm != "vendor"]
    assert all(c.rejected.startswith("needs") for c in own)


@settings(max_examples=40, deadline=None)
@given(
    size=st.tuples(*[st.integers(200, 3000)] * 3),
    dtype=st.sampled_from(list(DTYPES)),
    threads=st.sampled_from([1, 4]),
    static_b=st.booleans(),
    allowed=st.integers(0, 64 << 20),
)
def test_no_plan_takes_more_than_allowed(size, dtype, threads, static_b, allowed):
    M, N, K = size
    problem = Problem(M, N, K, dtype, threads=threads, static_b=static_b, workspace=allowed)
    plan = make_plan(problem, EAGER)
    assert plan.chosen.workspace <= allowed
    for candidate in plan.candidates:
        assert candidate.workspace <= allowed or candidate.rejected


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("size", [1500, 4096])
def test_a_quarter_of_the_operands_is_enough_for_a_scheme(dtype: str, size: int):
    quarter = Problem(size, size, size, dtype).operand_bytes // 4
    plan = make_plan(Problem(size, size, size, dtype, workspace=quarter), EAGER)
    assert plan.chosen.algorithm.startswith("strassen")
    assert plan.chosen.workspace <= quarter


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize("scheme", ["classical", "strassen", "strassen2", "strassen3"])
@pytest.mark.parametrize("static_b", [False, True])
def test_planned_memory_is_what_a_run_takes(
    dtype: str, scheme: str, static_b: bool, monkeypatch: pytest.MonkeyPatch
):
    options = {"scheme": scheme, "static_b": static_b, "accuracy": "fast"}
    problem = Problem(450, 470, 490, dtype, **options)
    machine = _on_this_isa(problem)
    plan, asked = make_plan(problem, machine), []
    take = workspace.take
    monkeypatch.setattr(workspace, "take", lambda n: asked.append(n) or take(n))
    recipe = plan.chosen.recipe
    assert recipe is not None
    rng = np.random.default_rng(0)
    a, b = integers(rng, (450, 490), dtype), integers(rng, (490, 470), dtype)
    c = np.empty((450, 470), NUMPY_DTYPES[dtype])
    held = 0
    if static_b:
        b = kernel.pack(recipe, b)
        held = b.nbytes
        asked.clear()
    kernel.execute(recipe, a, b, c)
    (during,) = asked
    assert plan.chosen.workspace == pytest.approx(held + during, rel=0.01)


def _on_this_isa(problem: Problem):
    """The made-up machine with register tiles that this one can run."""
    return replace(EAGER, tiles={problem.compute: tile(problem.dtype)})


# --- a packed operand -----------------------------------------------------------------------------


def test_plan_for_a_static_operand_holds_all_of_it():
    """Its packed form is memory of the plan: R/(k·n) times B, at least."""
    plan = make_plan(Problem(512, N, N, static_b=True, scheme="strassen"), EAGER)
    assert plan.chosen.workspace > 7 / 4 * N * N * 4
    assert re.search(r"B row \(packed\)", str(plan))
    assert (
        plan.chosen.seconds < make_plan(Problem(512, N, N, scheme="strassen"), EAGER).chosen.seconds
    )


# --- shares of threads ----------------------------------------------------------------------------


def test_no_width_makes_two_threads_share_unevenly():
    """The rate of two levels is steady over N: no width is cut into one task, or into three."""
    rates = []
    for N in range(1600, 3600, 64):
        plan = make_plan(Problem(672, N, N, threads=2, scheme="strassen2"), TWO_CORES)
        rates.append(plan.problem.flops / plan.chosen.seconds)
    assert all(b > 0.97 * a for a, b in pairwise(rates))


def test_the_last_columns_are_numpys_on_one_thread_or_in_a_long_product():
    """NumPy's threads would go on spinning and take the cores of the next call."""
    wide = Problem(N, 2 * N + 5, N, scheme="strassen")
    assert make_plan(wide, EAGER).chosen.fringe == 5
    shared = make_plan(replace(wide, threads=2), TWO_CORES).chosen
    assert (shared.fringe, shared.recipe and shared.recipe.N) == (0, wide.N)
    long = replace(wide, M=4096, N=4099, K=4096, threads=2)
    assert make_plan(long, TWO_CORES).chosen.fringe == 3


@pytest.mark.parametrize(("dtype", "depth"), [("float32", 256), ("float64", 128)])
def test_a_tile_of_a_and_a_panel_of_b_leave_room_in_l1(dtype: str, depth: int):
    """Without sums the panel alone decides: there are no other tiles of C to be updated."""
    (zen4,) = (m for m in all_shipped() if m.cores == 1 and m.l2 == 1 << 20)
    for scheme, expected in (("strassen2", depth), ("classical", 256)):
        recipe = make_plan(Problem(4096, 4096, 4096, dtype, scheme=scheme), zen4).chosen.recipe
        assert recipe is not None
        assert recipe.blocking.target.depth == expected


def test_many_threads_share_packed_a():
    """Where two of them live on a core, with panels and scratch that leave room for the other's."""
    many = with_rates(
        replace(MACHINE, cores=16), scaling=13, memory_scaling=6, vendor_all_cores=600
    )
    for size in (4096, 8192):
        problem = Problem(size, size, size, threads=16)
        chosen = make_plan(problem, many).chosen
        assert chosen.recipe is not None
        block, program = chosen.recipe.blocking, chosen.recipe.program
        assert block.packed_a > 0
        assert block.target.depth * 16 * 4 <= many.l1 / 3
        assert program.m * program.n * block.c_block <= many.l2 / 3


def test_many_threads_wait_for_each_other_seldom():
    """Few groups of columns, many tasks in each: all wait for the last one after every group."""
    (server,) = (m for m in all_shipped() if m.cores == 16)
    recipe = make_plan(Problem(4096, 4096, 4096, "float64", threads=16), server).chosen.recipe
    assert recipe is not None
    block = recipe.blocking
    tasks = ceil_div(4096, block.mc) * ceil_div(block.panels, block.task_panels)
    assert ceil_div(4096, block.nc) <= 2
    assert tasks >= 8 * 16


@pytest.mark.parametrize(("size", "name"), [(4096, "classical"), (8192, "strassen2")])
def test_many_threads_run_two_levels_where_these_pay(size: int, name: str):
    (server,) = (m for m in all_shipped() if m.cores == 16)
    assert chosen(Problem(size, size, size, threads=16), server) == name


def test_a_scheme_of_many_blocks_has_a_plan_with_many_threads():
    problem = Problem(2048, 2048, 2048, threads=16, scheme="strassen3")
    assert make_plan(problem, replace(MACHINE, cores=16)).chosen.algorithm == "strassen3"


@pytest.mark.parametrize("options", [{}, {"threads": 2}, {"dtype": "float64"}])
def test_shallow_products_are_the_vendors(options: dict):
    for N, K in ((3000, 2), (3000, 32), (16, 256)):
        assert make_plan(Problem(3000, N, K, **options), MACHINE).chosen.algorithm == "vendor"
    named = Problem(3000, 3000, 2, scheme="classical", must_use=True, **options)
    assert make_plan(named, MACHINE).chosen.algorithm == "classical"
    assert make_plan(Problem(3000, 3000, 9, dtype="float16"), MACHINE).chosen.recipe is not None


def test_the_thinner_a_product_the_more_must_be_gained():
    """How much faster than NumPy's the classical kernel is predicted where it is first chosen."""
    needed = []
    for rows in (4, 16, 64, 256):
        problem = Problem(rows, 3000, 3000)
        gains = []
        for rate in range(30, 100):
            plan = make_plan(problem, with_rates(MACHINE, vendor=rate))
            if plan.chosen.algorithm != "vendor":
                gains.append(plan.vendor.seconds / plan.chosen.seconds)
        needed.append(min(gains))
    assert all(a > b for a, b in pairwise(needed))
    assert needed[0] > 1.3
    assert needed[-1] < 1.04


@pytest.mark.parametrize("threads", [1, 2])
def test_where_rows_are_few_the_tasks_pack_b_in_turn(threads: int):
    def classical(M: int, **options):
        problem = Problem(M, 3000, 3000, scheme="classical", threads=threads, **options)
        recipe = make_plan(problem, TWO_CORES).chosen.recipe
        assert recipe is not None
        return recipe.blocking

    few = classical(100)
    assert few.target.in_turn
    assert few.packed == 0
    assert ceil_div(few.panels, few.task_panels) % threads == 0
    assert not classical(1500).target.in_turn
    assert not classical(100, static_b=True).target.in_turn
