"""What is chosen on an H200, and why the rest is not."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.planner.gpu.h200 import H200
from tiercel.errors import TiercelRuntimeError, TiercelValueError
from tiercel.planner.describe import listing
from tiercel.planner.gpu import GpuCandidate, GpuPlan, make_plan
from tiercel.planner.problem import Problem


def chosen(*sizes: int, **facts: Any) -> str:
    M, N, K = sizes
    return make_plan(Problem(M, N, K, **facts), H200).chosen.algorithm


def chosen_of(problem: Problem) -> GpuCandidate:
    return make_plan(problem, H200).chosen


def rejected(plan: GpuPlan, algorithm: str) -> str:
    return next(c.rejected for c in plan.candidates if c.algorithm == algorithm)


@pytest.mark.parametrize(
    ("n", "dtype", "expected"),
    [
        (2048, "float32", "vendor"),
        (4096, "float32", "strassen2"),
        (16384, "float32", "strassen3"),
        (2048, "float64", "vendor"),
        (8192, "float64", "strassen2"),
        (2048, "complex64", "strassen"),
        (8192, "complex128", "strassen2"),
        (8192, "bfloat16", "classical"),  # of two row-major operands B is measured before
    ],
)
def test_what_is_chosen_for_square_products(n: int, dtype: str, expected: str):
    assert chosen(n, n, n, dtype=dtype) == expected


@pytest.mark.parametrize("M", [1, 16, 64, 128])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_decoding_is_the_vendors(M: int, dtype: str):
    assert chosen(M, 8192, 8192, dtype=dtype, static_b=True) == "vendor"


def test_static_weights_of_a_prefill_run_inside_the_kernel():
    facts = {"dtype": "bfloat16", "static_b": True}
    assert chosen(8192, 8192, 8192, **facts) == "winograd"
    assert chosen(16384, 16384, 16384, **facts) == "lean-4x2x4"
    assert chosen(16384, 53248, 16384, **facts) == "lean-4x2x4"
    assert chosen(8192, 28672, 8192, **facts) == "lean-4x2x4"
    assert chosen(8192, 4096, 4096, **facts) == "classical"  # K is short


def test_both_operands_are_combined_where_the_gain_is_clear():
    assert chosen(16384, 16384, 16384, dtype="bfloat16", layout_b="col") == "winograd"
    assert chosen(8192, 28672, 8192, dtype="bfloat16", layout_b="col") == "winograd"
    assert chosen(4096, 4096, 4096, dtype="bfloat16", layout_b="col") == "classical"


@pytest.mark.parametrize(("static_b", "expected"), [(False, "classical"), (True, "winograd")])
def test_very_many_columns_are_combined_before_or_not_at_all(static_b: bool, expected: str):
    # 0.94 of cuBLAS's speed with both operands combined, measured twice; classically 1.02.
    problem = Problem(8192, 128256, 4096, "bfloat16", layout_b="col", static_b=static_b)
    assert make_plan(problem, H200).chosen.algorithm == expected


def test_accuracy_and_workspace_decide_between_schemes_inside_the_kernel():
    problem = Problem(16384, 16384, 16384, "bfloat16", static_b=True)
    kinds = {c.algorithm: c for c in make_plan(problem, H200).candidates if c.variant.schemes}
    small = replace(problem, workspace=kinds["winograd"].workspace)
    assert make_plan(small, H200).chosen.algorithm == "winograd"
    assert rejected(make_plan(small, H200), "lean-4x2x4").startswith("needs ")
    exact = make_plan(replace(problem, accuracy="classical"), H200)
    assert exact.chosen.growth == 1.0


def test_a_short_k_or_an_epilogue_makes_the_own_kernel_win():
    assert chosen(8192, 14336, 4096, dtype="bfloat16") == "classical"
    assert chosen(8192, 4096, 8192, dtype="bfloat16") == "classical"
    assert chosen(8192, 8192, 8192, dtype="bfloat16", epilogue="gelu") == "classical"


@pytest.mark.parametrize(("N", "expected"), [(12288, "vendor"), (12416, "classical")])
def test_tiles_that_fill_their_waves_and_hide_their_ends_are_the_vendors(N: int, expected: str):
    # With 12288 columns cuBLAS takes tiles of 128 × 176, and the own kernel had 0.956 of its speed;
    # with 12416 it takes 128 × 192, and that had 1.04.
    problem = Problem(3584, N, 3072, "bfloat16", layout_b="col", static_b=True)
    assert make_plan(problem, H200).chosen.algorithm == expected


def test_an_isolated_call_must_not_lose_by_its_wait_for_an_own_kernel():
    problem = Problem(16384, 16384, 16384, "bfloat16", layout_b="col")
    plan = make_plan(problem, H200)
    assert plan.chosen.variant.kind == "fused"
    won = (plan.vendor.seconds - plan.chosen.seconds) * 1e6
    allowed = won + 0.02 * plan.vendor.seconds * 1e6
    for wait, loses in ((0.9 * allowed, False), (allowed + 500, True)):
        chosen = make_plan(problem, replace(H200, prepare=wait)).chosen
        assert (chosen.variant.kind != "fused") == loses
    assert make_plan(Problem(1024, 4096, 4096, "bfloat16"), H200).chosen.algorithm == "vendor"


def test_an_isolated_call_must_not_lose_by_the_launches_of_its_sums():
    problem = Problem(3072, 3072, 3072)
    assert make_plan(problem, replace(H200, lead=0.0)).chosen.algorithm != "vendor"
    assert make_plan(problem, replace(H200, lead=500.0)).chosen.algorithm == "vendor"
    packed = replace(problem, static_b=True)
    assert make_plan(packed, replace(H200, lead=500.0)).chosen.algorithm != "vendor"


def test_oblong_schemes_where_a_side_is_short():
    assert chosen(16384, 24576, 1536) == "lean-4x2x4"
    assert chosen(16384, 24576, 1536, accuracy=2.0) == "strassen"


def test_packed_weights_are_used_in_streams_of_calls():
    problem = Problem(8192, 28672, 8192, "bfloat16", static_b=True)
    chosen = make_plan(problem, replace(H200, prepare=600.0)).chosen
    assert chosen.variant.kind == "fused"


def test_a_gain_below_the_margin_is_not_taken():
    plan = make_plan(Problem(8192, 8192, 8192), H200)
    for candidate in plan.candidates:
        if candidate.algorithm not in ("vendor", plan.chosen.algorithm):
            assert candidate.seconds >= plan.chosen.seconds
    slow = replace(H200, combine=600.0, finish=600.0)
    plan = make_plan(Problem(8192, 8192, 8192), slow)
    best = min(plan.candidates, key=lambda c: c.seconds)
    assert (plan.chosen.algorithm == "vendor") == (plan.vendor.seconds < 1.02 * best.seconds)


def test_accuracy_bounds_the_levels():
    sizes = (16384, 16384, 16384)
    assert chosen(*sizes, accuracy="classical") == "vendor"
    assert chosen(*sizes, accuracy=4.0) == "strassen2"
    plan = make_plan(Problem(*sizes, accuracy=4.0), H200)
    assert rejected(plan, "strassen3") == "error growth 8.0 over the allowed 4"


def test_workspace_bounds_the_levels_at_once():
    plan = make_plan(Problem(8192, 8192, 8192, workspace=100 << 20), H200)
    assert plan.chosen.workspace <= 100 << 20
    assert chosen(8192, 8192, 8192, workspace=0) == "vendor"
    plan = make_plan(Problem(8192, 8192, 8192, workspace=0), H200)
    assert rejected(plan, "strassen").startswith("needs ")


def test_rejected_candidates_say_why():
    plan = make_plan(Problem(8192, 8200, 8192, "bfloat16", static_b=True), H200)
    assert rejected(plan, "winograd") == "N 8200 must be a multiple of 16 and K 8192 of 16"
    assert rejected(plan, "lean-4x2x4") == "N 8200 must be a multiple of 32 and K 8192 of 16"
    plan = make_plan(Problem(8192, 8192, 8192, "bfloat16", layout_a="strided"), H200)
    assert rejected(plan, "classical") == "A cannot be read in 16-byte steps"
    plan = make_plan(Problem(8192, 8192, 200), H200)
    assert "too short to judge" in rejected(plan, "strassen")
    plan = make_plan(Problem(512, 8192, 8192), H200)
    assert rejected(plan, "strassen3") == "planes with a side under 128 were not measured"
    plan = make_plan(Problem(512, 8192, 8192, "float64"), H200)
    assert rejected(plan, "strassen") == "planes with a side under 512 were not measured"


@pytest.mark.parametrize(("layout", "fringe"), [("row", 1), ("col", 7)])
def test_rows_that_do_not_divide_are_the_vendors(layout: str, fringe: int):
    problem = Problem(16384 + 7, 16384, 16384, "bfloat16", layout_a=layout, static_b=True)
    only = replace(H200, fused={"winograd": H200.fused["winograd"]})
    plan = make_plan(problem, only)
    assert (plan.chosen.algorithm, plan.chosen.fringe) == ("winograd", fringe)
    assert listing(plan).endswith(f"the last {fringe} rows by the vendor's library")


def test_rows_of_a_turn_that_is_not_full_are_the_vendors():
    problem = Problem(19456, 7168, 18432, "bfloat16", static_b=True)
    only = replace(H200, fused={"winograd": H200.fused["winograd"]})
    chosen = make_plan(problem, only).chosen
    assert (chosen.algorithm, chosen.fringe) == ("winograd", 512)
    whole = make_plan(replace(problem, M=18944), only)
    assert whole.chosen.fringe == 0
    assert whole.chosen.workspace == chosen.workspace
    named = make_plan(replace(problem, scheme="winograd"), only).chosen
    assert (named.algorithm, named.fringe) == ("winograd", 0)


def test_no_more_than_a_third_of_the_rows_is_left_to_the_vendor():
    problem = Problem(9728, 3072, 12288, "bfloat16", layout_b="col", static_b=True)
    candidates = {c.algorithm: c for c in make_plan(problem, H200).candidates}
    assert candidates["winograd"].fringe == 0  # 4096 rows would leave whole turns
    assert chosen_of(replace(problem, M=10240, N=4096, K=8192)).fringe == 2048


def test_rows_that_fill_no_tile_of_planes_are_the_vendors():
    problem = Problem(12800, 4096, 8192, layout_b="col", static_b=True)
    plan = make_plan(problem, H200)
    assert (plan.chosen.algorithm, plan.chosen.fringe) == ("strassen3", 512)
    assert plan.chosen.workspace == chosen_of(replace(problem, M=12288)).workspace
    assert listing(plan).endswith("the last 512 rows by the vendor's library")
    packed = replace(problem, scheme="strassen3", must_use=False)
    assert chosen_of(packed).fringe == 512
    # Who names a scheme has it for all rows; so have an epilogue, and a B that is not packed.
    others = {"scheme": "strassen3"}, {"epilogue": "gelu"}, {"static_b": False}
    assert [chosen_of(replace(problem, **facts)).fringe for facts in others] == [0, 0, 0]


def test_named_schemes_run_or_say_why_not():
    assert chosen(600, 600, 600, scheme="strassen") == "strassen"
    assert chosen(600, 600, 600, dtype="bfloat16", scheme="classical") == "classical"
    assert chosen(8192, 8192, 8192, scheme="strassen", must_use=False) == "strassen"
    assert chosen(600, 600, 600, scheme="strassen", must_use=False) == "vendor"
    assert chosen(600, 600, 600, scheme="vendor") == "vendor"
    assert chosen(1, 8192, 60, scheme="winograd", must_use=False) == "vendor"  # packed for it
    with pytest.raises(TiercelValueError, match="too short to judge"):
        chosen(600, 600, 60, scheme="strassen")
    with pytest.raises(TiercelRuntimeError, match="scheme='classical' cannot run for float32"):
        chosen(600, 600, 600, scheme="classical")


def test_a_gpu_without_kernels_is_the_vendors():
    bare = replace(H200, rates={}, plain=None, fused={}, notes={"unavailable": "no driver"})
    plan = make_plan(Problem(8192, 8192, 8192), bare)
    assert [c.algorithm for c in plan.candidates] == ["vendor"]
    assert "vendor" in str(plan)
    with pytest.raises(TiercelRuntimeError, match="no driver"):
        make_plan(Problem(8192, 8192, 8192, scheme="strassen"), bare)
    portable = replace(H200, plain=None, fused={})
    plan = make_plan(Problem(8192, 8192, 8192, "bfloat16", static_b=True), portable)
    assert plan.chosen.algorithm == "vendor"


def test_error_growth_of_16_bit_planes():
    plan = make_plan(Problem(8192, 8192, 8192, "bfloat16", static_b=True), H200)
    growth = {c.algorithm: c.growth for c in plan.candidates}
    assert growth["winograd"] == pytest.approx(1.023, abs=2e-3)  # as measured
    assert growth["classical"] == growth["vendor"] == 1.0
    plan = make_plan(Problem(8192, 8192, 8192, "float16", static_b=True), H200)
    growth = {c.algorithm: c.growth for c in plan.candidates}
    assert growth["winograd"] == pytest.approx(3.7, abs=0.1)  # as measured
    assert growth["lean-4x2x4"] == pytest.approx(4.2, abs=0.1)


def test_a_weight_is_packed_for_one_kernel():
    problem = Problem(8192, 8192, 8192, "bfloat16", static_b=True, scheme="winograd")
    assert [c.variant.kind for c in make_plan(problem, H200).candidates] == ["vendor", "fused"]
    few = replace(problem, M=2050, N=2048)  # where cuBLAS's routine would win
    assert make_plan(few, H200).chosen.variant.kind == "fused"
    odd = replace(problem, N=8200)
    assert make_plan(odd, H200).chosen.variant.kind == "portable"


def test_printed_and_as_data():
    problem = Problem(8192, 28672, 8192, "bfloat16", static_b=True)
    plan = make_plan(problem, replace(H200, fused={"winograd": H200.fused["winograd"]}))
    head, _, *rows = str(plan).splitlines()
    assert head == (
        "8192 × 28672 × 8192 bfloat16, A row, B row (packed), NVIDIA H200 (shipped profile), "
        "accuracy standard"
    )
    assert len(rows) == len(plan.candidates)
    assert listing(plan).startswith("inside one kernel, winograd: 7 multiplies, 3 saves, 3 loads")
    data = json.loads(json.dumps(plan.to_json(), allow_nan=False))
    assert data["algorithm"] == "winograd"
    assert plan.multiplications_saved == 8192 * 28672 * 8192 // 8


def test_public_plan_without_a_gpu():
    import tiercel

    plan = tiercel.plan(16384, 16384, 16384, device="NVIDIA H200")
    assert plan.chosen.algorithm == "strassen3"
    with pytest.raises(TiercelValueError, match="known: NVIDIA H200"):
        tiercel.plan(64, 64, 64, device="GeForce 256")
