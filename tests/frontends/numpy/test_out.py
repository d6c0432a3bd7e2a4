"""``out``: aliasing, layouts and refusals."""

import numpy as np
import pytest

from tiercel.api import matmul
from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.frontends.numpy.out import writable_in_place
from tiercel.frontends.numpy.shapes import product_shape

pytestmark = pytest.mark.usefixtures("plan_everything")

RNG = np.random.default_rng(5)


def integers(*shape: int, dtype="f8") -> np.ndarray:
    return RNG.integers(-3, 4, shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["f4", "f8", "c16", "f2"])
@pytest.mark.parametrize("shape", [(130, 130), (3, 40, 40)])
def test_out_may_be_an_operand(dtype, shape):
    a, b = integers(*shape, dtype=dtype), integers(*shape, dtype=dtype)
    expected = a.copy() @ b
    assert matmul(a, b, out=a) is a
    np.testing.assert_array_equal(a, expected)
    square = b.copy() @ b
    matmul(b, b, out=b)
    np.testing.assert_array_equal(b, square)


@pytest.mark.parametrize("shift", [1, 7, 30])
def test_out_may_overlap_an_operand_in_part(shift):
    buffer = integers(100 + shift, 60)
    a, out, b = buffer[:100], buffer[shift:], integers(60, 60)
    expected = a.copy() @ b
    matmul(a, b, out=out)
    np.testing.assert_array_equal(out, expected)


def test_out_may_be_a_transpose_or_reversal_of_an_operand():
    for view in (lambda x: x.T, lambda x: x[::-1], lambda x: x[:, ::-1]):
        a, b = integers(50, 50), integers(50, 50)
        expected = a.copy() @ b
        matmul(a, b, out=view(a))
        np.testing.assert_array_equal(view(a), expected)


def test_interleaved_views_are_written_without_a_temporary():
    base = integers(40, 80)
    shape = product_shape((40, 40), (40, 40))
    a, out = base[:, :40], base[:, 40:]
    assert writable_in_place(out, shape, out.dtype, a)
    assert not writable_in_place(base[:, 20:60], shape, out.dtype, a)


def test_elements_between_strided_ones_are_left_alone():
    base = np.arange(100.0).reshape(10, 10)
    a = base[::-2, ::-2]
    big = np.full((10, 10), np.nan)
    matmul(a, a, out=big[::-2, ::-2])
    np.testing.assert_array_equal(big[::-2, ::-2], a.copy() @ a.copy())
    assert np.isnan(big).sum() == 75


@pytest.mark.parametrize("n", [2, 33, 160])
def test_f_order_out_receives_the_same_values(n):
    x = integers(3, n, n)
    out = np.empty((n, n), order="F")
    matmul(x[0], x[1], out=out)
    np.testing.assert_array_equal(out, x[0] @ x[1])
    outs = np.empty((3, n, n)).transpose(0, 2, 1)
    matmul(x, x, out=outs)
    np.testing.assert_array_equal(outs, x @ x)


def test_out_is_never_read():
    for m, k, n in ((1, 1, 1), (5, 9, 7), (63, 65, 67), (129, 130, 131), (5, 0, 6)):
        a, b = integers(m, k, dtype="f4"), integers(k, n, dtype="f4")
        out = np.full((m, n), np.nan, "f4")
        matmul(a, b, out=out)
        np.testing.assert_array_equal(out, a @ b)


@pytest.mark.parametrize("dtype", ["f4", ">f8", "c16", "f2", object])
def test_out_of_another_dtype_receives_a_cast(dtype):
    a, b = integers(20, 30), integers(30, 10)
    out = np.empty((20, 10), dtype)
    assert matmul(a, b, out=(out,)) is out
    np.testing.assert_array_equal(out, (a @ b).astype(dtype))


def test_out_with_a_larger_batch_repeats_the_result():
    a, b, out = integers(20, 30), integers(30, 10), np.empty((3, 20, 10))
    matmul(a, b, out=out)
    np.testing.assert_array_equal(out, np.broadcast_to(a @ b, out.shape))


def test_out_that_overlaps_itself_gets_one_of_the_values_like_numpy():
    a = integers(30, 30)
    buffer = np.zeros(30)
    out = np.lib.stride_tricks.as_strided(buffer, (30, 30), (0, 8))
    ones = np.ones((30, 30))
    matmul(ones, a, out=out)
    np.testing.assert_array_equal(buffer, a.sum(0))


def test_unaligned_and_split_element_arrays():
    record = np.zeros(30 * 30, dtype=[("pad", "i1"), ("x", "f4"), ("z", "c8")])
    record["x"], record["z"] = integers(900), integers(900)
    for name in ("x", "z"):
        a = record[name].reshape(30, 30)
        out = np.zeros(900, record.dtype)[name].reshape(30, 30)
        matmul(a, a, out=out)
        np.testing.assert_array_equal(out, a.copy() @ a.copy())


@pytest.mark.parametrize(
    ("out", "error", "message"),
    [
        (np.full((4, 5), 7), TiercelTypeError, "Cannot cast ufunc 'matmul' output"),
        (np.full((4, 6), 7.0), TiercelValueError, r"shape \(4, 6\), the result \(4, 5\)"),
        (np.full((5,), 7.0), TiercelValueError, "shape"),
        (np.full((2, 5, 4), 7.0), TiercelValueError, "shape"),
        ((np.full((4, 5), 7.0), np.full((4, 5), 7.0)), TiercelValueError, "exactly one output"),
        ((), TiercelValueError, "exactly one output"),
        ([[7.0] * 5] * 4, TiercelTypeError, "out is a list"),
    ],
)
def test_unfit_out_is_refused_and_not_written(out, error, message):
    with pytest.raises(error, match=message):
        matmul(np.ones((4, 3)), np.ones((3, 5)), out=out)
    for x in out if isinstance(out, tuple) else (out,):
        assert (np.asarray(x) == 7).all()


def test_read_only_out_is_refused():
    out = np.zeros((4, 4))
    out.flags.writeable = False
    with pytest.raises(TiercelValueError, match="read-only"):
        matmul(np.ones((4, 4)), np.ones((4, 4)), out=out)


def test_empty_batch_does_not_broadcast_to_out():
    empty = np.ones((0, 1, 1))
    with pytest.raises(TiercelValueError, match="non-broadcastable"):
        matmul(empty, empty, out=np.ones((1, 1, 1)))
