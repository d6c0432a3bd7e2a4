"""Products by NumPy's own BLAS: the bits, the refusals and the warnings of ``np.matmul``."""

import ctypes
import platform
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tiercel.targets.cpu.params import NOTED
from tiercel.targets.cpu.shortcut.handover import Handover
from tiercel.targets.cpu.shortcut.numpys_blas import WARNED, routines

MEMORY = ctypes.create_string_buffer(NOTED * 8)


@pytest.fixture
def table() -> Handover:
    return Handover(ctypes.addressof(MEMORY), routines())


def operands() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.random((30, 40)), rng.random((40, 50))


def test_the_routine_of_numpys_blas_is_found_where_its_wheel_has_one():
    found = routines()
    wheel = np.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"] == "scipy-openblas"
    assert (found is not None) == (wheel and platform.machine() in WARNED)


LAYOUTS = ("row", "column", "rows apart", "columns apart", "backwards")


def laid_out(x: np.ndarray, layout: str) -> np.ndarray:
    if layout == "row":
        return x
    if layout == "column":
        return np.asfortranarray(x)
    if layout == "backwards":
        return x[::-1]
    wide = np.zeros((x.shape[0], x.shape[1] + 3), x.dtype)
    wide[:, 1:-2] = x
    return wide[:, 1:-2] if layout == "rows apart" else np.asfortranarray(wide)[:, 1:-2]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.int32])
@pytest.mark.parametrize("b_layout", LAYOUTS)
@pytest.mark.parametrize("a_layout", LAYOUTS)
def test_the_bits_are_numpys(table: Handover, a_layout: str, b_layout: str, dtype: type):
    rng = np.random.default_rng(1)
    for M, N, K in ((30, 50, 40), (2, 3, 2), (1, 9, 7), (9, 1, 7), (7, 9, 1)):
        a = laid_out((rng.standard_normal((M, K)) * 9).astype(dtype), a_layout)
        b = laid_out((rng.standard_normal((K, N)) * 9).astype(dtype), b_layout)
        table.add(a, b, 0)
        np.testing.assert_array_equal(table.call(a, b, None), np.matmul(a, b))
        out = np.full((M, N), 3, dtype)
        assert table.call(a, b, out) is out
        np.testing.assert_array_equal(out, np.matmul(a, b))


def test_any_out_that_numpy_takes_is_filled(table: Handover):
    a, b = operands()
    table.add(a, b, 0)
    expected = a @ b
    whole = np.empty((60, 100))
    for out in (
        np.empty((50, 30)).T, whole[::2, ::2], whole[:30, :50], whole[30:, 50:][::-1],
        np.empty((30, 50), np.float32).astype(np.float64), np.empty((30, 50), np.complex128),
        np.empty((30, 50)).view(np.matrix),
    ):  # fmt: skip
        assert table.call(a, b, out) is out
        np.testing.assert_allclose(np.asarray(out), expected, rtol=1e-14)


def test_an_out_that_numpy_refuses_is_refused(table: Handover):
    a, b = operands()
    table.add(a, b, 0)
    fixed = np.zeros((30, 50))
    fixed.flags.writeable = False
    for out in (fixed, np.zeros((30, 50), np.int32), np.zeros((50, 30))):
        with pytest.raises((ValueError, TypeError)):
            table.call(a, b, out)
        assert not out.any()
    with pytest.raises(TypeError):
        table.call(a, b, [[0.0] * 50] * 30)


def test_an_out_that_overlaps_an_operand_is_copied_as_by_numpy(table: Handover):
    rng = np.random.default_rng(2)
    memory = rng.random(3 * 1600)
    a, b = memory[:1600].reshape(40, 40), memory[1600:3200].reshape(40, 40)
    table.add(a, b, 0)
    for start in (0, 40, 1560, 1600, 1700, 3200):
        expected, before = a @ b, memory.copy()
        out = memory[start : start + 1600].reshape(40, 40)
        np.testing.assert_array_equal(table.call(a, b, out), expected)
        memory[:] = before


def test_a_times_its_own_transpose_is_symmetric(table: Handover):
    a = np.random.default_rng(3).random((70, 50))
    table.add(a, a.T, 0)
    product = table.call(a, a.T, None)
    np.testing.assert_array_equal(product, product.T)
    np.testing.assert_array_equal(product, a @ a.T)


def test_what_is_not_aligned_is_multiplied(table: Handover):
    a, b = operands()
    table.add(a, b, 0)
    askew = np.zeros(a.nbytes + 1, np.uint8)[1:].view(np.float64).reshape(a.shape)
    askew[:] = a
    np.testing.assert_array_equal(table.call(askew, b, None), a @ b)


def test_numpys_warnings_are_given(table: Handover):
    a, b = (np.ones((20, 20), np.float32) for _ in range(2))
    table.add(a, b, 0)
    out = np.empty((20, 20), np.float32)
    a[3, :2] = np.inf, -np.inf
    for given in (None, out):
        with pytest.warns(RuntimeWarning, match="invalid value"):
            result = table.call(a, b, given)
        assert np.isnan(result[3]).all()
        with np.errstate(invalid="raise"), pytest.raises(FloatingPointError):
            table.call(a, b, given)
        with np.errstate(invalid="ignore"):
            table.call(a, b, given)
    a[:] = 3e38
    with pytest.warns(RuntimeWarning, match="overflow"):
        table.call(a, b, None)


def test_nan_alone_is_no_reason_to_warn(table: Handover):
    a, b = operands()
    a[0, 0] = np.nan
    table.add(a, b, 0)
    assert np.isnan(table.call(a, b, None)[0]).all()


def test_other_threads_run_meanwhile(table: Handover):
    a = np.ones((1500, 1500))
    table.add(a, a.copy(), 0)
    seen, done = [], threading.Event()

    def watch() -> None:
        while not done.is_set():
            seen.append(time.perf_counter())
            time.sleep(1e-3)

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    table.call(a, a.copy(), None)
    end = time.perf_counter()
    done.set()
    watcher.join()
    assert sum(start < at < end for at in seen) > 2


def test_threads_multiply_at_once(table: Handover):
    pairs = [(np.full((60, 50), float(i)), np.ones((50, 40))) for i in range(8)]
    table.add(*pairs[0], 0)

    def repeat(pair: tuple[np.ndarray, np.ndarray]) -> bool:
        expected = pair[0] @ pair[1]
        return all(np.array_equal(table.call(*pair, None), expected) for _ in range(300))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(repeat, pairs))
