"""``numpy_matmul``: what is routed, where, and that NumPy itself stays as it was."""

import threading

import numpy as np
import pytest

from tiercel import api
from tiercel.api import numpy_matmul
from tiercel.errors import TiercelTypeError
from tiercel.frontends.numpy.override import RoutedArray

RNG = np.random.default_rng(2)
A, B, C = (RNG.integers(-3, 4, (6, 6)).astype("f8") for _ in range(3))


@pytest.fixture
def calls(monkeypatch):
    """Shapes of the products that reached tiercel."""
    seen = []
    real = api.matmul

    def matmul(a, b, /, out=None, **options):
        seen.append((np.shape(a), np.shape(b)))
        assert not isinstance(a, RoutedArray)
        return real(a, b, out=out, **options)

    monkeypatch.setattr(api, "matmul", matmul)
    return seen


@pytest.mark.parametrize(
    ("product", "count"),
    [
        (lambda a: a @ B, 1),
        (lambda a: B @ a, 1),
        (lambda a: np.matmul(a, B), 1),
        (lambda a: np.dot(a, B), 1),
        (lambda a: np.dot(B, a), 1),
        (lambda a: a.dot(B), 1),
        (lambda a: np.inner(a, B), 1),
        (lambda a: np.inner(a, B[0]), 1),
        (lambda a: np.dot(a[0], B[0]), 1),
        (lambda a: np.linalg.multi_dot([a, B, C]), 2),
        (lambda a: np.linalg.matrix_power(a, 3), 2),
        (lambda a: (a @ B) @ C, 2),
        (lambda a: np.dot(a, np.stack([B, C])), 0),
        (lambda a: np.dot(a, 2), 0),
        (lambda a: np.einsum("ij,jk", a, B), 0),
        (lambda a: a + B, 0),
    ],
)
def test_products_are_routed_and_right(calls, product, count):
    expected = product(A)
    with numpy_matmul() as wrap:
        result = product(wrap(A))
    assert len(calls) == count
    np.testing.assert_array_equal(np.asarray(result), expected)


def test_results_stay_wrapped_inside_only(calls):
    with numpy_matmul() as wrap:
        a = wrap(A)
        assert type(a @ B + 1) is RoutedArray
    assert type(a @ B) is np.ndarray
    assert len(calls) == 1


def test_wrapping_shares_memory():
    with numpy_matmul() as wrap:
        assert np.shares_memory(wrap(A), A)
        assert wrap([[1.0]]).shape == (1, 1)


def test_out_and_in_place_operators_return_their_array(calls):
    with numpy_matmul() as wrap:
        a, out = wrap(A.copy()), np.empty((6, 6))
        assert np.matmul(a, B, out=out) is out
        before = a
        a @= B
        a += 1
        assert a is before
    np.testing.assert_array_equal(out, A @ B)
    np.testing.assert_array_equal(a, A @ B + 1)
    assert len(calls) == 2


def test_other_threads_are_not_affected(calls):
    with numpy_matmul() as wrap:
        a = wrap(A)
        thread = threading.Thread(target=lambda: a @ B)
        thread.start()
        thread.join()
    assert calls == []


def test_blocks_nest_and_end_on_exceptions(calls):
    def stopped():
        with numpy_matmul() as wrap:
            a = wrap(A)
            with numpy_matmul(scheme="vendor"):
                np.matmul(a, B)
            np.matmul(a, B)
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        stopped()
    np.matmul(RoutedArray((6, 6)), B)
    assert len(calls) == 2


def test_multiple_outputs_and_reductions():
    with numpy_matmul() as wrap:
        fraction, whole = np.modf(wrap(A / 2))
        assert type(fraction) is type(whole) is RoutedArray
        assert np.add.reduce(wrap(A), axis=None) == A.sum()


def test_numpy_is_not_patched():
    before = np.matmul, np.dot, np.inner
    with numpy_matmul():
        assert (np.matmul, np.dot, np.inner) == before


def test_a_masked_array_is_not_wrapped():
    with numpy_matmul() as wrap, pytest.raises(TiercelTypeError, match="MaskedArray"):
        wrap(np.ma.ones(3))
