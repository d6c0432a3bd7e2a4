"""``tiercel.plan``: what it refuses, and that a plan multiplies by what it chose."""

from typing import Any

import numpy as np
import pytest

from tiercel import last_plan, pack, plan
from tiercel.errors import TiercelTypeError, TiercelValueError


@pytest.mark.parametrize(
    ("sizes", "error"),
    [((1.5, 2, 3), TiercelTypeError), (("1", 2, 3), TiercelTypeError),
     ((1, True, 3), TiercelTypeError), ((1, 2, 0), TiercelValueError)],
)  # fmt: skip
def test_sizes_of_a_plan_are_whole_numbers(sizes, error):
    with pytest.raises(error, match="allowed: whole numbers >= 1"):
        plan(*sizes)
    assert plan(*np.array([4, 5, 6])).problem.M == 4


@pytest.mark.parametrize(
    ("dtype", "name"),
    [("f4", "float32"), (np.float64, "float64"), (np.dtype("c8"), "complex64"), (float, "float64"),
     ("half", "float16"), ("bfloat16", "bfloat16")],
)  # fmt: skip
def test_dtypes_are_what_numpy_takes_for_them(dtype, name):
    assert plan(4, 5, 6, dtype=dtype).problem.dtype == name


@pytest.mark.parametrize("dtype", [None, int, "x", 3])
def test_other_dtypes_are_named(dtype):
    with pytest.raises(TiercelTypeError, match=rf"dtype={dtype!r} is not accelerated; allowed: f"):
        plan(4, 5, 6, dtype=dtype)


@pytest.mark.parametrize("algorithm", ["vendor", "classical", "strassen", "winograd"])
def test_a_plan_multiplies_by_what_it_chose(algorithm: str):
    a, b = (np.random.default_rng(i).integers(-3, 4, (70, 70)).astype("f4") for i in range(2))
    made = plan(70, 70, 70, scheme=algorithm, epilogue="relu", threads=1)
    out = np.full((70, 70), np.nan, "f4")
    assert made(a, b, out, bias=np.ones(70, "f4")) is out
    assert np.array_equal(out, np.maximum(a @ b + 1, 0))
    assert made.chosen.algorithm == algorithm
    if algorithm != "vendor":  # which leaves no trace of what is this small
        assert str(last_plan()) == str(made)


def test_a_plan_refuses_other_operands():
    made, a = plan(4, 5, 6, threads=1), np.ones((4, 6), "f4")
    with pytest.raises(TiercelValueError, match=r"for b of shape \(6, 5\), not \(6, 4\)"):
        made(a, np.ones((6, 4), "f4"))
    with pytest.raises(TiercelTypeError, match="for float32, b has float64"):
        made(a, np.ones((6, 5)))
    with pytest.raises(TiercelTypeError, match="NVIDIA H200"):
        plan(4, 5, 6, device="NVIDIA H200")(a, np.ones((6, 5), "f4"))


def test_a_plan_with_a_packed_operand():
    a, b = np.ones((50, 70), "f4"), np.ones((70, 60), "f4")
    made = plan(50, 60, 70, static_b=True, scheme="strassen", threads=1)
    assert np.array_equal(made(a, pack(b, scheme="strassen")), np.full((50, 60), 70))


@pytest.mark.parametrize("value", ["no", 1, None])
def test_static_b_is_a_switch(value):
    with pytest.raises(TiercelTypeError, match=rf"static_b={value!r} is not a switch"):
        plan(4, 5, 6, static_b=value)
    numpys: Any = np.True_
    assert plan(4, 5, 6, static_b=numpys).problem.static_b is True


@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
def test_devices_are_what_pytorch_takes_for_them(device: str):
    class Device:  # as torch.device prints itself
        def __str__(self) -> str:
            return device

    assert plan(4096, 4096, 4096, device=Device()) == plan(4096, 4096, 4096, device=device)
    with pytest.raises(TiercelValueError, match="no profile of GPU 'cuda:x'"):
        plan(4, 5, 6, device="cuda:x")
