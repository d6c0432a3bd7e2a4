"""What half-precision slots and planes do to the error, by emulation."""

import ml_dtypes
import numpy as np
import pytest

from tiercel import schemes
from tiercel.lower.accumulator import Rounding, accumulate, run

SIZE = 64


def error(name: str, rounding: Rounding, scale: float = 1.0) -> float:
    """‖C − AB‖ / ‖AB‖ for normal operands that bfloat16 holds exactly."""
    rng = np.random.default_rng(0)
    a, b = (
        rng.standard_normal((SIZE, SIZE)).astype(ml_dtypes.bfloat16).astype(np.float64)
        for _ in range(2)
    )
    exact = a @ b * scale**2
    c = run(accumulate(schemes.get(name)), a * scale, b * scale, rounding)
    return float(np.linalg.norm(c - exact) / np.linalg.norm(exact))


@pytest.mark.parametrize("name", ["winograd", "strassen"])
def test_half_precision_slots_cost_less_than_a_bfloat16_output(name: str):
    slots = Rounding(register=np.float16, scratch=np.float16)
    assert 0 < error(name, slots) < 0.001 < error(name, Rounding(planes=ml_dtypes.bfloat16))


def test_float16_planes_keep_three_more_bits_of_bfloat16_operands():
    """At least: a sum of bfloat16 numbers of like size often fits float16 exactly."""
    coarse, fine = (
        error("winograd", Rounding(planes=dtype)) for dtype in (ml_dtypes.bfloat16, np.float16)
    )
    assert coarse > 8 * fine


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_slots_are_scaled_into_range(scale: float):
    slots = Rounding(register=np.float16, scratch=np.float16)
    assert error("winograd", slots, scale) == pytest.approx(error("winograd", slots), rel=0.2)


def test_full_precision_rounds_nothing_away():
    assert error("strassen", Rounding()) < 1e-14


def test_non_finite_values_spread_but_do_not_fail():
    program = accumulate(schemes.get("winograd"))
    a = np.ones((2, 2))
    a[0, 0] = np.inf
    with np.errstate(invalid="ignore"):
        c = run(program, a, np.ones((2, 2)), Rounding(register=np.float16))
    assert not np.isfinite(c[0]).any()
