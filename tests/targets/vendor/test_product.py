"""NumPy as a target: 16-bit products and un-fused epilogues on any layout of out."""

import ml_dtypes
import numpy as np
import pytest

from tiercel.targets import vendor

RNG = np.random.default_rng(8)


def integers(*shape: int, dtype="f4") -> np.ndarray:
    return RNG.integers(-3, 4, shape).astype(dtype)


def test_float16_keeps_numpys_result():
    for a, b in (((5, 6), (6, 7)), ((6,), (6, 7)), ((6,), (6,)), ((2, 5, 6), (6, 3))):
        x, y = integers(*a, dtype="f2"), integers(*b, dtype="f2")
        result, expected = vendor.matmul(x, y), np.matmul(x, y)
        assert type(result) is type(expected)
        assert result.dtype == np.float16
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8"])
def test_outer_products_are_numpys(dtype):
    """One multiplication an element: the same value, not-a-number and rounding."""
    for a, b in (((300, 1), (1, 310)), ((2, 1, 30, 1), (3, 1, 20)), ((5, 1), (1, 1))):
        x, y = (RNG.standard_normal(shape).astype(dtype) for shape in (a, b))
        x.flat[:2], y.flat[-1] = (np.nan, np.inf), 0
        with np.errstate(invalid="ignore"):
            result, expected = vendor.matmul(x, y), np.matmul(x, y)
            out = np.empty(expected.shape, dtype).swapaxes(-1, -2).copy().swapaxes(-1, -2)
            assert vendor.matmul(x, y, out) is out
        assert result.dtype == expected.dtype
        np.testing.assert_array_equal(result, expected)
        np.testing.assert_array_equal(out, expected)


def test_repeated_float16_operands_are_not_written_out():
    x = np.broadcast_to(integers(1, 6, dtype="f2"), (2**30, 6))[:4]
    y = integers(6, 3, dtype="f2")
    np.testing.assert_array_equal(vendor.matmul(x, y), np.matmul(x, y))


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ml_dtypes.bfloat16])
def test_bias_and_epilogue_in_any_layout_of_out(dtype):
    a, b, bias = integers(3, 5, 6, dtype=dtype), integers(6, 7, dtype=dtype), integers(7)
    expected = np.maximum(a.astype("f8") @ b.astype("f8") + bias, 0)
    for out in (
        np.empty((3, 5, 7), dtype),
        np.empty((7, 5, 3), dtype).T,
        np.empty((3, 10, 14), dtype)[:, ::-2, ::2],
    ):
        given = vendor.matmul(a, b, out, epilogue="relu", bias=bias.astype(dtype))
        assert given is out
        np.testing.assert_array_equal(out.astype("f8"), expected)


def test_16_bit_values_are_rounded_once():
    # 2048 + 1 - 2048 is 1 in float32, 0 if the product is rounded before the bias.
    one = np.ones((1, 2), "f2")
    b = np.array([[2048], [1]], "f2")
    assert vendor.matmul(one, b, bias=np.array([-2048], "f2"))[0, 0] == 1


def test_epilogue_works_in_steps(monkeypatch):
    from tiercel.targets.vendor import epilogue

    monkeypatch.setattr(epilogue, "_STEP", 10)
    a = integers(23, 4)
    c = vendor.matmul(a, a.T, epilogue="relu")
    np.testing.assert_array_equal(c, np.maximum(a @ a.T, 0))
