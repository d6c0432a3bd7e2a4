"""Plans of TF32 products: own kernels only, and operands that are copied where they lie across."""

from typing import Any

import pytest

from tests.planner.gpu.h200 import H200
from tiercel.errors import TiercelRuntimeError
from tiercel.planner.gpu import GpuCandidate, make_plan
from tiercel.planner.problem import Problem


def plan_of(n: int, layouts: str = "row,col", **facts: Any) -> Any:
    a, b = layouts.split(",")
    return make_plan(Problem(n, n, n, "tfloat32", a, b, **facts), H200)


def candidate(n: int, algorithm: str, layouts: str = "row,col", **facts: Any) -> GpuCandidate:
    plan = plan_of(n, layouts, **facts)
    return next(c for c in plan.candidates if c.algorithm == algorithm)


def test_only_the_own_kernels_are_considered():
    kinds = {c.variant.kind for c in plan_of(16384).candidates}
    assert kinds == {"vendor", "plain", "fused"}
    with pytest.raises(TiercelRuntimeError, match="cannot run for tfloat32"):
        plan_of(8192, scheme="strassen")


@pytest.mark.parametrize("layouts", ["row,row", "row,col", "col,row", "col,col"])
def test_large_products_take_a_scheme_within_the_accuracy(layouts: str):
    chosen = plan_of(16384, layouts).chosen
    assert chosen.variant.kind == "fused"
    assert 2 < chosen.growth < 3
    assert plan_of(16384, layouts, accuracy="classical").chosen.algorithm == "classical"


def test_the_vendor_loses_most_where_both_operands_lie_across():
    across, along = candidate(4096, "vendor", "col,row"), candidate(4096, "vendor")
    assert across.seconds > 1.3 * along.seconds
    assert plan_of(4096, "col,row").chosen.algorithm == "classical"


def test_copies_count_as_time_and_memory():
    matrix = 4 * 8192**2
    along = candidate(8192, "winograd")
    for layouts, copies in {"row,row": 1, "col,col": 1, "col,row": 2}.items():
        found = candidate(8192, "winograd", layouts)
        assert found.workspace - along.workspace == copies * matrix
        assert found.seconds > along.seconds
    assert candidate(8192, "classical", "col,row").workspace == matrix
    assert candidate(8192, "classical", "row,row").workspace == 0
    assert candidate(8192, "classical", "col,row", workspace=0).rejected


def test_a_weight_is_packed_along_k():
    assert not candidate(8192, "winograd", static_b=True).rejected
    across = candidate(8192, "winograd", "row,row", static_b=True)
    assert "contiguous along K" in across.rejected
