"""Array types and dtypes: what is computed here, what is NumPy's, and the dtype of the answer."""

import itertools
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tiercel.api import matmul
from tiercel.errors import TiercelTypeError, TiercelValueError

pytestmark = pytest.mark.usefixtures("plan_everything")

ALL = "?bhilqBHILQefdgFDGO"


@pytest.mark.parametrize(("x", "y"), list(itertools.product(ALL, ALL)))
def test_result_dtype_is_numpys(x, y):
    a, b = np.ones((2, 3), x), np.ones((3, 2), y)
    expected = np.matmul(a, b)
    c = matmul(a, b)
    assert c.dtype == expected.dtype
    np.testing.assert_array_equal(c, expected)


def test_integers_are_exact_beyond_float64():
    a = np.array([[2**53 + 1, 1], [3, -(2**40)]])
    b = np.array([[1, 0], [2, 5]])
    assert matmul(a, b).tolist() == [[2**53 + 3, 5], [3 - 2**41, -5 * 2**40]]


def test_float16_accumulates_in_float32():
    a, b = np.ones((2, 4097), "f2"), np.ones((4097, 8), "f2")
    c = matmul(a, b)
    assert c.dtype == np.float16
    assert (c == np.float16(4097)).all()
    assert (matmul(a[0], b) == np.float16(4097)).all()


@pytest.mark.parametrize("shape", [(3, 4), (40, 50)])
def test_bfloat16_has_a_float32_product_unless_out_says_otherwise(shape):
    rng = np.random.default_rng(0)
    a = rng.integers(-3, 4, shape).astype(ml_dtypes.bfloat16)
    expected = a.astype("f4") @ a.T.astype("f4")
    c = matmul(a, a.T)
    assert c.dtype == (a @ a.T).dtype == np.float32
    np.testing.assert_array_equal(c, expected)
    out = np.empty(expected.shape, ml_dtypes.bfloat16)
    assert matmul(a, a.T, out=out) is out
    np.testing.assert_array_equal(out, expected.astype(ml_dtypes.bfloat16))


def test_lists_and_nested_sequences_are_arrays():
    assert matmul([[1.0, 2.0]], [[3.0], [4.0]]).tolist() == [[11.0]]
    assert matmul([1, 2], (3, 4)) == 11


def test_memory_maps_are_read_as_arrays(tmp_path):
    a = np.memmap(tmp_path / "a", "f4", "w+", shape=(40, 40))
    a[...] = np.eye(40)
    c = matmul(a, a)
    assert type(c) is type(np.matmul(a, a)) is np.ndarray
    np.testing.assert_array_equal(c, np.eye(40))
    assert matmul(c + c, a, out=a) is a
    np.testing.assert_array_equal(a, 2 * np.eye(40))


class Unit(np.ndarray):
    """A subclass that NumPy carries through."""


class Answers:
    """An object that overrides ufuncs."""

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        return ufunc.__name__


def test_subclasses_and_overriding_objects_are_handed_to_numpy():
    a = np.eye(3)
    assert type(matmul(a.view(Unit), a)) is Unit
    assert isinstance(matmul(np.ma.array(a, mask=a > 0), a), np.ma.MaskedArray)
    assert matmul(Answers(), a) == "matmul"
    assert matmul(a, Answers()) == "matmul"
    out = np.zeros((3, 3)).view(Unit)
    assert matmul(a, a, out=out) is out


def test_options_of_ours_do_not_reach_numpys_own_products():
    masked, whole = np.ma.ones((3, 3)), np.ones((3, 3), int)
    ours: list[dict[str, Any]] = [
        {"scheme": "strassen"}, {"epilogue": "relu"}, {"bias": np.ones(3)}
    ]  # fmt: skip
    for options in ours:
        for x in (masked, whole, np.ones((3, 3), "g")):
            with pytest.raises(TiercelTypeError, match=next(iter(options))):
                matmul(x, x, **options)
    assert matmul(whole, whole, scheme="vendor", threads=1).sum() == 27


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((1,), (2,)), ((2, 1), (2,)), ((2,), (1, 2)), ((1, 2), (3, 1)), ((1,), ()), ((), (1,)),
        ((1, 1), ()), ((), (1, 1)), ((2, 2, 1), (3, 1, 2)),
    ],
)  # fmt: skip
def test_shapes_that_do_not_fit(a, b):
    with pytest.raises(TiercelValueError) as raised:
        matmul(np.ones(a), np.ones(b))
    assert f"a float64 {a} and b float64 {b}" in str(raised.value)


def test_dtypes_without_a_product():
    with pytest.raises(TiercelTypeError, match="no product of dtypes"):
        matmul(np.array([["x"]]), np.array([["y"]]))


def test_overflow_warns_as_numpy_does():
    big = np.full((40, 40), 200, "f2")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert np.isinf(matmul(big * 10, big * 10)).all()


@pytest.mark.parametrize(
    "shapes",
    [
        ((3, 2, 0), (3, 0, 3)), ((3, 0, 0), (0, 0)), ((0, 4), (4, 2)),
        ((5, 0, 7), (5, 7, 9)), ((0, 3, 4), (4, 5)), ((0,), (0,)),
    ],
)  # fmt: skip
def test_empty_axes(shapes):
    a, b = map(np.ones, shapes)
    c = matmul(a, b)
    assert c.shape == np.matmul(a, b).shape
    assert (c == 0).all()
