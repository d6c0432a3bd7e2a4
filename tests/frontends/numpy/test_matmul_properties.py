"""Any product that NumPy takes, against exact integers: shapes x dtypes x strides x out."""

import hypothesis.extra.numpy as npst
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tiercel.api import matmul

DTYPES = ("f2", "f4", "f8", "c8", "c16", "i1", "i8", "u2", ">f4", ">f8", "g")
# The fixture only lowers thresholds: examples do not have to start from a fresh one.
relaxed = settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@st.composite
def laid_out(draw, shape: tuple[int, ...]) -> np.ndarray:
    """Integers in -3...3 of ``shape``: C, F or permuted order, stepped, reversed or repeated."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    order = draw(st.permutations(range(len(shape))))
    steps = draw(st.tuples(*[st.sampled_from((1, 1, 2, -1, -3, 0)) for _ in shape]))
    low = 0 if dtype.kind == "u" else -3
    buffer_shape = [1 if steps[axis] == 0 else shape[axis] * abs(steps[axis]) for axis in order]
    seed = draw(st.integers(0, 2**32 - 1))
    values = np.random.default_rng(seed).integers(low, 4, buffer_shape)
    buffer = values.astype(dtype).transpose(np.argsort(order))
    view = buffer[tuple(slice(None, None, step or 1) for step in steps)]
    return np.broadcast_to(view, shape)


@st.composite
def operands(draw) -> tuple[np.ndarray, np.ndarray]:
    """Operands of matching shapes: vectors, matrices, broadcast batches, empty axes."""
    shapes = draw(
        npst.mutually_broadcastable_shapes(
            signature="(m?,k),(k,n?)->(m?,n?)", max_dims=2, min_side=0, max_side=9
        )
    ).input_shapes
    return draw(laid_out(shapes[0])), draw(laid_out(shapes[1]))


def exact(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    whole = np.complex128 if "c" in (a.dtype.kind, b.dtype.kind) else np.int64
    return np.matmul(a.astype(whole), b.astype(whole))


@pytest.mark.usefixtures("plan_everything")
class TestAgainstExactIntegers:
    @relaxed
    @given(operands())
    def test_type_shape_and_values_are_those_of_numpy(self, pair):
        a, b = pair
        c = matmul(a, b)
        expected = np.matmul(a, b)
        assert type(c) is type(expected)
        assert c.dtype == expected.dtype
        assert c.shape == expected.shape
        np.testing.assert_array_equal(c, exact(a, b))

    @relaxed
    @given(operands(), st.data())
    def test_out_of_any_layout_is_written_and_returned(self, pair, data):
        a, b = pair
        expected = np.matmul(a, b)
        shape = expected.shape
        order = data.draw(st.permutations(range(len(shape))))
        steps = data.draw(st.tuples(*[st.sampled_from((1, 2, -1)) for _ in shape]))
        buffer = np.full([shape[i] * abs(steps[i]) for i in order], 77, expected.dtype)
        view = buffer.transpose(np.argsort(order))
        out = view[tuple(slice(None, None, step) for step in steps)]
        if not shape:
            out = np.full((), 77, expected.dtype)
        assert matmul(a, b, out=out) is out
        np.testing.assert_array_equal(out, exact(a, b))
        if shape:
            assert (buffer == 77).sum() >= buffer.size - out.size

    @relaxed
    @given(operands())
    def test_finite_operands_raise_no_floating_point_warning(self, pair):
        a, b = pair
        with np.errstate(all="raise"):
            matmul(a, b)


@pytest.mark.usefixtures("plan_everything")
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16", "f2"])
@pytest.mark.parametrize("shape", [(64, 65, 66), (131, 257, 96), (1, 300, 40), (300, 7, 1)])
def test_larger_products_are_exact_on_small_integers(dtype, shape):
    M, K, N = shape
    rng = np.random.default_rng(M)
    a, b = (rng.integers(-2, 3, s).astype(dtype) for s in ((M, K), (K, N)))
    np.testing.assert_array_equal(matmul(a, b), exact(a, b))
    np.testing.assert_array_equal(matmul(b.T, a.T), exact(a, b).T)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [511, 512, 640])
def test_default_plan_is_exact_around_its_cut_offs(dtype, n):
    rng = np.random.default_rng(n)
    a, b = (rng.integers(-2, 3, (n, n)).astype(dtype) for _ in range(2))
    np.testing.assert_array_equal(matmul(a, b), a.astype("f8") @ b.astype("f8"))


@pytest.mark.parametrize("where", ["a", "b"])
def test_infinity_reaches_only_its_row_or_column(where):
    rng = np.random.default_rng(3)
    a, b = (rng.uniform(0.5, 1, (256, 256)).astype("f4") for _ in range(2))
    (a if where == "a" else b.T)[3, 200] = np.inf
    c = matmul(a, b)
    c = c if where == "a" else c.T
    assert np.isposinf(c[3]).all()
    assert np.isfinite(np.delete(c, 3, 0)).all()
