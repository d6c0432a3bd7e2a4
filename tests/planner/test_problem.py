"""What a planner knows of a product."""

import json
from dataclasses import asdict

import pytest

from tiercel.planner.problem import DTYPES, Problem


@pytest.mark.parametrize("dtype", DTYPES)
def test_json_round_trip(dtype: str):
    problem = Problem(3, 4, 5, dtype, "col", epilogue="relu", accuracy=2.5, workspace=7, threads=2)
    assert Problem(**json.loads(json.dumps(asdict(problem)))) == problem


def test_equal_problems_are_one_key():
    assert hash(Problem(3, 4, 5)) == hash(Problem(3, 4, 5))
    assert Problem(3, 4, 5) != Problem(3, 4, 5, static_b=True)


def test_operations_and_bytes():
    real, double = Problem(2, 3, 4), Problem(2, 3, 4, "complex128")
    assert (real.flops, double.flops) == (48, 4 * 48)
    assert (real.operand_bytes, double.operand_bytes) == (4 * (8 + 12), 16 * (8 + 12))


@pytest.mark.parametrize(
    ("dtype", "compute", "storage", "is_complex"),
    [
        ("float32", "float32", "float32", False),
        ("bfloat16", "float32", "bfloat16", False),
        ("complex128", "float64", "float64", True),
    ],
)
def test_dtypes_of_computing_and_storing(dtype: str, compute: str, storage: str, is_complex: bool):
    problem = Problem(1, 1, 1, dtype)
    assert (problem.compute, problem.storage, problem.is_complex) == (compute, storage, is_complex)
