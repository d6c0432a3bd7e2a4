"""Conversion on the way in (exact) and on the way out (to nearest, ties to even)."""

import ml_dtypes
import numpy as np
import pytest

from tests.targets.cpu.recipes import DTYPES, recipe
from tiercel.targets.cpu.kernel import execute

HALVES = {"float16": np.dtype("f2"), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


def every_value(dtype: str) -> np.ndarray:
    return np.arange(1 << 16, dtype=np.uint16).view(HALVES[dtype]).reshape(256, 256)


def stored(values: np.ndarray, dtype: str) -> np.ndarray:
    """float32 ``values`` (M, N) as the kernel stores them: each enters through the bias."""
    M, N = values.shape
    c = np.empty((M, N), HALVES[dtype])
    made = recipe(1, N, 1, None, dtype)
    zero_a, zero_b = np.zeros((1, 1), c.dtype), np.zeros((1, N), c.dtype)
    for row, bias in zip(c, values, strict=True):
        assert execute(made, zero_a, zero_b, row[None], bias)
    return c


def assert_same_bits(got: np.ndarray, expected: np.ndarray) -> None:
    """Equal bit by bit, where NaN equals NaN of any payload."""
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(got), nan)
    np.testing.assert_array_equal(got[~nan].view(np.uint16), expected[~nan].view(np.uint16))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("transposed", [False, True])
def test_every_value_is_read_exactly(dtype: str, transposed: bool):
    """I · B, finite B: what comes out is what was stored (−0 becomes 0 in a sum)."""
    b = np.nan_to_num(every_value(dtype).astype("f4"), nan=0, posinf=0, neginf=0)
    b = b.astype(HALVES[dtype])
    one = np.eye(256, dtype=HALVES[dtype])
    for x, y in ((one, b.T if transposed else b), (b.T if transposed else b, one)):
        c = np.empty((256, 256), HALVES[dtype])
        assert execute(recipe(256, 256, 256, None, dtype), x, y, c)
        np.testing.assert_array_equal(c, b.T if transposed else b)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("N", [256, 5])
def test_every_value_and_its_neighbours_are_rounded_to_nearest_even(dtype: str, N: int):
    exact = every_value(dtype).astype("f4")
    with np.errstate(all="ignore"):
        upper = np.nextafter(exact.astype("f8"), np.inf).astype("f4")
        bits = exact.view(np.uint32)
        step = np.uint32(1 << (13 if dtype == "float16" else 16))
        middle = (bits + step // 2).view("f4")  # a tie, for normal numbers
        values = [exact, upper, middle, np.nextafter(middle, np.float32(0)),
                  np.nextafter(middle, np.float32(np.inf))]  # fmt: skip
        for x in values:
            x = x[:, :N] + np.float32(0)  # the sum with the product turns −0 into 0
            assert_same_bits(stored(x, dtype), x.astype(HALVES[dtype]))


@pytest.mark.parametrize("dtype", HALVES)
def test_overflow_is_inf_and_nan_stays_nan(dtype: str):
    largest = np.float32(ml_dtypes.finfo(HALVES[dtype]).max)
    tie = np.float32(65520) if dtype == "float16" else np.uint32(0x7F7F8000).view("f4")
    below = np.nextafter(tie, np.float32(0))
    # The last NaN would become Inf if its lower half were dropped.
    quiet = np.uint32(0x7F800001).view("f4")
    values = np.array([[largest, below, tie, -tie, np.inf, -np.inf, np.nan, quiet]], "f4")
    c = stored(values, dtype)[0].astype("f4")
    np.testing.assert_array_equal(c[:6], [largest, largest, np.inf, -np.inf, np.inf, -np.inf])
    assert np.isnan(c[6:]).all()


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("scheme", [None, "strassen"])
def test_products_are_summed_in_float32_and_rounded_once(dtype: str, scheme: str | None):
    """2048 + 1 − 2048 is 1, where each partial sum in 16 bits would lose the 1."""
    K = 40
    a, b = np.zeros((12, K), DTYPES[dtype]), np.ones((K, 30), DTYPES[dtype])
    a[:, [3, 20, 39]] = [2048, 1, -2048]
    c = np.empty((12, 30), DTYPES[dtype])
    assert execute(recipe(12, 30, K, scheme, dtype), a, b, c)
    np.testing.assert_array_equal(c.astype("f4"), 1)
