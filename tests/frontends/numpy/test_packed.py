"""``pack``: what it holds, which plan uses it, and what serves where it cannot."""

import numpy as np
import pytest

from tiercel.api import linear, matmul, pack
from tiercel.errors import TiercelTypeError, TiercelValueError

RNG = np.random.default_rng(6)


def integers(*shape: int, dtype="f4") -> np.ndarray:
    return RNG.integers(-3, 4, shape).astype(dtype)


def test_a_packed_operand_stands_for_the_matrix(engine):
    b = integers(7, 5)
    packed = pack(b, rows=9)
    assert (packed.shape, packed.dtype, packed.ndim) == ((7, 5), np.float32, 2)
    assert packed.nbytes == 2 * b.nbytes
    assert "strassen" in repr(packed)
    for shape in ((4, 7), (2, 3, 7)):
        a = integers(*shape)
        np.testing.assert_array_equal(matmul(a, packed), a @ b)
    assert engine.packed_runs == 2
    packing, first, _ = engine.problems
    assert (packing.M, packing.static_b, packing.scheme) == (9, True, None)
    assert (first.M, first.static_b, first.scheme) == (4, True, "strassen")


def test_batches_that_do_not_join_and_vectors(engine):
    b = integers(7, 5)
    packed = pack(b)
    x = integers(3, 8, 7)[:, :5]
    np.testing.assert_array_equal(matmul(x, packed), x @ b)
    assert engine.packed_runs == 3
    np.testing.assert_array_equal(matmul(x[0, 0], packed), x[0, 0] @ b)
    np.testing.assert_array_equal(matmul(x[:, :0], packed), x[:, :0] @ b)


def test_linear_takes_the_packed_transpose(engine):
    x, w, bias = integers(4, 7), integers(5, 7), integers(5)
    y = linear(x, pack(w.T), bias, epilogue="relu")
    np.testing.assert_array_equal(y, np.maximum(x @ w.T + bias, 0))
    assert engine.packed_runs == 1


def test_unsafe_data_use_the_matrix_itself(engine):
    packed = pack(integers(7, 5))
    engine.safe = False
    a = integers(4, 7)
    np.testing.assert_array_equal(matmul(a, packed), a @ packed.source)
    assert engine.runs == ["strassen", "classical"]


def test_nothing_is_packed_for_numpys_product(engine):
    engine.algorithm = "vendor"
    b = integers(7, 5)
    packed = pack(b)
    assert packed.nbytes == 0
    np.testing.assert_array_equal(matmul(b.T, packed), b.T @ b)


def test_mismatches_are_refused(engine):
    packed = pack(integers(7, 5))
    with pytest.raises(TiercelTypeError, match="b is packed as float32, the product is float64"):
        matmul(integers(4, 7, dtype="f8"), packed)
    with pytest.raises(TiercelValueError, match="packed for 'strassen'"):
        matmul(integers(4, 7), packed, scheme="winograd")
    with pytest.raises(TiercelValueError, match="inner sizes differ"):
        matmul(integers(4, 8), packed)


@pytest.mark.parametrize(
    ("b", "options", "error", "message"),
    [
        (np.ones((3, 3), int), {}, TiercelTypeError, "cannot pack int64"),
        (np.ma.ones((3, 3)), {}, TiercelTypeError, "cannot pack MaskedArray"),
        (np.ones((2, 3, 3)), {}, TiercelValueError, "3 axes"),
        (np.ones((3, 3)), {"rows": 0}, TiercelValueError, "rows=0"),
    ],
)
def test_what_cannot_be_packed(b, options, error, message):
    with pytest.raises(error, match=message):
        pack(b, **options)


@pytest.mark.parametrize(
    "product", [lambda a, b: matmul(b, a), lambda a, b: a @ b, lambda a, b: pack(b)]
)
def test_it_is_a_right_operand_of_matmul_only(engine, product):
    with pytest.raises(TypeError, match="Packed"):
        product(integers(5, 7), pack(integers(7, 5)))


@pytest.mark.usefixtures("plan_everything")
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_packed_products_are_exact_on_small_integers(dtype, order):
    b = np.asarray(integers(130, 97, dtype=dtype), order=order)
    packed = pack(b, rows=64)
    for rows in (1, 64, 201):
        a = integers(rows, 130, dtype=dtype)
        np.testing.assert_array_equal(matmul(a, packed), a.astype("f8") @ b)


@pytest.mark.parametrize("place", ["a", "out"])
def test_a_packed_operand_in_another_place_is_named(place: str):
    x = np.ones((3, 3))
    given = {"a": x, "out": None, place: pack(x)}
    with pytest.raises(TiercelTypeError, match=f"{place} is a Packed; allowed: "):
        matmul(given["a"], x, out=given["out"])
