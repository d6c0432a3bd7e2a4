"""Own products on one thread by generated code alone: like any other product, and only then."""

import ctypes
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from tests.targets.cpu.recipes import recipe
from tiercel.lower.blocking import Target
from tiercel.lower.recipe import Guard, Recipe
from tiercel.targets.cpu import threads
from tiercel.targets.cpu.params import CALLS, NOTED, OWN_CALLS
from tiercel.targets.cpu.shortcut.alone import ROOM, Alone, alone
from tiercel.targets.cpu.shortcut.handover import Handover
from tiercel.targets.cpu.shortcut.numpys_blas import routines
from tiercel.targets.cpu.shortcut.repeat import Repeat

MEMORY = ctypes.create_string_buffer(NOTED * 8)
NOTES = memoryview(MEMORY).cast("B").cast("q")
M, N, K = 50, 70, 90

pytestmark = pytest.mark.skipif(routines() is None, reason="NumPy has another BLAS")


def classical(dtype: str = "float32", *, swapped: bool = False) -> Recipe:
    rows, cols = (N, M) if swapped else (M, N)
    return replace(recipe(rows, cols, K, dtype=dtype), swapped=swapped)


def operands(dtype: str = "float32") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((M, K)).astype(dtype), rng.standard_normal((K, N)).astype(dtype)
    return a, b, np.zeros((M, N), dtype)


class Table:
    """A table with one own product; ``asked``: calls that were left to Python."""

    def __init__(self, recipe: Recipe, dtype: str = "float32") -> None:
        self.a, self.b, self.c = operands(dtype)
        self.repeat = Repeat(recipe, self.a, self.b, self.c)
        self.asked = 0
        made = alone(self.repeat)
        assert made is not None
        self.alone: Alone = made
        self.table = Handover(ctypes.addressof(MEMORY), routines())
        self.table.add(self.a, self.b, 3, self.way, made)

    def way(self, a: np.ndarray, b: np.ndarray, out: np.ndarray | None) -> None:
        self.asked += 1

    def call(self, out: np.ndarray | None = None) -> np.ndarray:
        return self.table.call(self.a, self.b, out)


@pytest.fixture
def one(monkeypatch: pytest.MonkeyPatch) -> Table:
    monkeypatch.setenv("TIERCEL_NUM_THREADS", "1")
    return Table(classical())


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_bits_are_those_of_any_other_call(
    monkeypatch: pytest.MonkeyPatch, dtype: str, swapped: bool
):
    monkeypatch.setenv("TIERCEL_NUM_THREADS", "1")
    known = Table(classical(dtype, swapped=swapped), dtype)
    known.repeat(known.a, known.b, known.c)
    np.testing.assert_allclose(known.c, known.a @ known.b, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(known.call(), known.c)
    out = np.zeros_like(known.c)
    assert known.call(out) is out
    np.testing.assert_array_equal(out, known.c)
    assert known.asked == 0


def test_what_numpy_would_warn_of_is_left_to_python(one: Table):
    a = one.a.copy()
    one.a[3] = 1e38
    assert one.call() is NotImplemented
    assert one.asked == 1
    one.a[:] = a
    np.testing.assert_allclose(one.call(), a @ one.b, rtol=1e-3, atol=1e-4)
    assert one.asked == 1


def test_calls_are_counted_and_timed(one: Table):
    before, own = NOTES[CALLS], NOTES[OWN_CALLS]
    one.alone.taken()
    for _ in range(3):
        one.call()
    assert (NOTES[CALLS] - before, NOTES[OWN_CALLS] - own) == (3, 3)
    calls, seconds = one.alone.taken()
    assert calls == 3
    assert 0 < seconds < 1
    assert one.alone.taken() == (0, 0.0)


def test_python_is_asked_where_an_array_is_not_like_the_first(one: Table):
    before = NOTES[CALLS]
    memory = np.zeros(4 * M * N, np.float32)
    one.a = memory[: M * K].reshape(M, K)
    for out in (
        np.empty((N, M), np.float32).T, np.empty((M, N)), np.empty((M, N + 1), np.float32),
        memory[5 : 5 + M * N].reshape(M, N), [],
    ):  # fmt: skip
        assert one.call(out) is NotImplemented  # pyright: ignore[reportArgumentType]
    assert one.asked == 5
    assert NOTES[CALLS] == before


def test_python_is_asked_where_threads_are_allowed_later(
    one: Table, monkeypatch: pytest.MonkeyPatch
):
    assert one.call() is not NotImplemented
    monkeypatch.setenv("TIERCEL_NUM_THREADS", "2")
    assert one.call() is NotImplemented
    monkeypatch.delenv("TIERCEL_NUM_THREADS")
    assert one.call() is NotImplemented


def test_blas_limit_counts_where_nothing_was_set(monkeypatch: pytest.MonkeyPatch):
    threadpoolctl = pytest.importorskip("threadpoolctl")
    monkeypatch.delenv("TIERCEL_NUM_THREADS", raising=False)
    if threads.cores() < 2:
        pytest.skip("one core has one thread, whatever the limit")
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        known = Table(classical())
        assert known.call() is not NotImplemented
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        assert known.call() is NotImplemented


def test_threads_that_meet_multiply_all_the_same(one: Table):
    one.repeat(one.a, one.b, one.c)

    def multiply(_: int) -> bool:
        made = one.call()
        return made is NotImplemented or np.array_equal(made, one.c)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(multiply, range(400)))
    assert one.call() is not NotImplemented


def test_no_reference_is_lost_or_kept(one: Table):
    out = np.zeros_like(one.c)
    other = np.empty((N, M), np.float32).T
    objects = (one.a, one.b, out, other, one.a.dtype, one.way, None, NotImplemented)
    one.call(out)
    before = [sys.getrefcount(x) for x in objects]
    for _ in range(500):
        one.call(out)
        one.call()
        one.call(other)
    after = [sys.getrefcount(x) for x in objects]
    assert after[:6] == before[:6]
    assert all(abs(x - y) < 50 for x, y in zip(after[6:], before[6:], strict=True))


def test_what_needs_threads_a_guard_or_much_memory_is_pythons():
    arrays = operands()
    guarded = recipe(M, N, K, "strassen", guard=Guard(limit=1e3, headroom=1e30))
    for made in (guarded, recipe(M, N, K, threads=2)):
        assert alone(Repeat(made, *arrays)) is None
    whole = Target(1500, 1500, 1500, 1500, 1500)
    large = Repeat(
        recipe(1500, 1500, 1500, target=whole), *(np.zeros((1500, 1500), np.float32),) * 3
    )
    assert large.nbytes > ROOM
    assert alone(large) is None


def test_other_threads_run_meanwhile(one: Table):
    ticks, done = [], threading.Event()
    ticker = threading.Thread(target=lambda: [ticks.append(1) for _ in iter(done.is_set, True)])
    ticker.start()
    for _ in range(200):
        one.call()
    done.set()
    ticker.join()
    assert ticks
