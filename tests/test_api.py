"""The public functions: which frontend answers, how errors read, what a tiny call costs."""

import subprocess
import sys
import timeit

import numpy as np
import pytest

from tiercel import api, last_plan
from tiercel.errors import TiercelError, TiercelTypeError, TiercelValueError


def test_errors_say_what_the_function_was_called_with():
    a, b = np.ones((3, 4), "f4"), np.ones((5, 6))
    with pytest.raises(TiercelValueError) as raised:
        api.matmul(a, b)
    assert str(raised.value).startswith("matmul of a float32 (3, 4) and b float64 (5, 6): inner")
    assert raised.value.__suppress_context__
    with pytest.raises(TiercelValueError, match=r"^linear of x \(list\) and w float64 \(5, 6\)"):
        api.linear([[1.0]], b)
    with pytest.raises(TiercelTypeError, match=r"threads='2' is not"):
        api.matmul(a, a, threads="2")  # pyright: ignore[reportArgumentType]


def test_linear_speaks_of_its_own_operands():
    with pytest.raises(TiercelValueError, match=r"last axis of x has 3 elements, that of w 4"):
        api.linear(np.ones((2, 3)), np.ones((3, 4)))


@pytest.mark.parametrize(
    ("sizes", "error"),
    [((1.5, 2, 3), TiercelTypeError), (("1", 2, 3), TiercelTypeError),
     ((1, True, 3), TiercelTypeError), ((1, 2, 0), TiercelValueError)],
)  # fmt: skip
def test_sizes_of_a_plan_are_whole_numbers(sizes, error):
    with pytest.raises(error, match="allowed: whole numbers >= 1"):
        api.plan(*sizes)
    assert api.plan(*np.array([4, 5, 6])).problem.M == 4


def test_errors_are_what_numpy_would_raise():
    for error in (TiercelValueError, ValueError, TiercelError):
        with pytest.raises(error):
            api.matmul(np.ones((3, 4)), np.ones((3, 4)))


def test_a_framework_gets_its_own_frontend(monkeypatch):
    class Foreign:
        __module__ = "framework.tensors"

    monkeypatch.setitem(api._FRONTENDS, "framework", lambda: "its own")
    assert api._frontend(Foreign, np.ndarray) == "its own"
    assert api._frontend(np.ndarray, Foreign) == "its own"
    assert api._frontend(np.ndarray, list).__name__ == "tiercel.frontends.numpy"


def test_models_need_torch():
    program = """
import sys
sys.modules["torch"] = None
import tiercel
try:
    tiercel.patch(object())
except tiercel.TiercelRuntimeError as error:
    print(error)
"""
    command = [sys.executable, "-c", program]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "tiercel[torch]" in printed


def test_out_may_be_positional_as_for_numpy():
    out = np.empty((2, 2))
    assert api.matmul(np.eye(2), np.eye(2), out) is out


@pytest.mark.parametrize("out", [None, np.empty((4, 4), "f4")])
def test_a_tiny_call_costs_at_most_3_us_more_than_numpy(out):
    a = np.ones((4, 4), "f4")
    calls, rounds = 2000, 15

    def best(function):
        return min(timeit.repeat(lambda: function(a, a, out=out), number=calls, repeat=rounds))

    best(api.matmul)
    assert (best(api.matmul) - best(np.matmul)) / calls < 3e-6


@pytest.mark.parametrize("algorithm", ["vendor", "classical", "strassen", "winograd"])
def test_a_plan_multiplies_by_what_it_chose(algorithm: str):
    a, b = (np.random.default_rng(i).integers(-3, 4, (70, 70)).astype("f4") for i in range(2))
    plan = api.plan(70, 70, 70, scheme=algorithm, epilogue="relu", threads=1)
    out = np.full((70, 70), np.nan, "f4")
    assert plan(a, b, out, bias=np.ones(70, "f4")) is out
    assert np.array_equal(out, np.maximum(a @ b + 1, 0))
    assert plan.chosen.algorithm == algorithm
    if algorithm != "vendor":  # which leaves no trace of what is this small
        assert str(last_plan()) == str(plan)


def test_a_plan_refuses_other_operands():
    plan, a = api.plan(4, 5, 6, threads=1), np.ones((4, 6), "f4")
    with pytest.raises(TiercelValueError, match=r"for b of shape \(6, 5\), not \(6, 4\)"):
        plan(a, np.ones((6, 4), "f4"))
    with pytest.raises(TiercelTypeError, match="for float32, b has float64"):
        plan(a, np.ones((6, 5)))
    with pytest.raises(TiercelTypeError, match="NVIDIA H200"):
        api.plan(4, 5, 6, device="NVIDIA H200")(a, np.ones((6, 5), "f4"))


def test_a_plan_with_a_packed_operand():
    a, b = np.ones((50, 70), "f4"), np.ones((70, 60), "f4")
    plan = api.plan(50, 60, 70, static_b=True, scheme="strassen", threads=1)
    assert np.array_equal(plan(a, api.pack(b, scheme="strassen")), np.full((50, 60), 70))
