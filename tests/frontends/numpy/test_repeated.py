"""The second call of a kind skips the front end; what is not quite like the first must not."""

import numpy as np
import pytest

import tiercel
from tiercel import shortcut
from tiercel.frontends.numpy import product, repeated
from tiercel.options import DEFAULT
from tiercel.shortcut import KNOWN, key_of

N = 256


@pytest.fixture(autouse=True)
def strassen(monkeypatch: pytest.MonkeyPatch):
    """Plans that run Strassen's scheme on one thread, whatever this machine would do."""
    made = tiercel.plan(N, N, N, threads=1, scheme="strassen")
    monkeypatch.setattr(repeated, "allowed", lambda: 1)
    request = product.Request(DEFAULT)
    shortcut.forget()
    a, b, c = np.ones((N, N), np.float32), np.ones((N, N), np.float32), np.ones((N, N), np.float32)
    repeated.remember(made, a, b, c, request)
    yield made
    shortcut.forget()


def operands() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, (N, N)).astype(np.float32) for _ in "ab")
    return a, b, np.empty((N, N), np.float32)


def again(a: np.ndarray, b: np.ndarray, out: np.ndarray | None) -> np.ndarray | None:
    run = KNOWN[hash(key_of(a, b))].run
    assert run is not None
    return run(a, b, out)


def test_the_second_call_runs_the_plan(strassen):
    a, b, out = operands()
    result = again(a, b, out)
    assert result is out
    np.testing.assert_array_equal(out, a @ b)
    np.testing.assert_array_equal(again(a, b, None), a @ b)
    tiercel.matmul(a, b)
    assert tiercel.last_plan() is strassen


def test_data_that_the_guard_refuses_run_classically():
    a, b, out = operands()
    a[3, 5] = np.nan
    assert again(a, b, out) is out
    np.testing.assert_array_equal(out, a @ b)
    plan = tiercel.last_plan()
    assert plan is not None
    assert plan.chosen.algorithm in ("classical", "vendor")


@pytest.mark.parametrize(
    "out",
    [
        np.empty((N, N + 1), np.float32),
        np.empty((N, N), np.float32).T,
        np.empty((N, N), np.float64),
        np.frombuffer(bytes(4 * N * N), np.float32).reshape(N, N),
        np.frombuffer(bytearray(4 * N * N + 1), np.uint8)[1:].view(np.float32).reshape(N, N),
    ],
    ids=["shape", "strides", "dtype", "read-only", "unaligned"],
)
def test_an_unlike_out_takes_the_long_way(out: np.ndarray):
    a, b, _ = operands()
    assert again(a, b, out) is None


def test_an_overlapping_out_takes_the_long_way():
    rng = np.random.default_rng(0)
    rows = rng.integers(-4, 5, (2 * N, N)).astype(np.float32)
    a, shifted, behind = rows[:N], rows[1 : N + 1], rows[N:]
    b = operands()[1]
    expected = a @ b
    assert again(a, b, behind) is behind
    np.testing.assert_array_equal(behind, expected)
    assert again(a, b, shifted) is None
    assert again(b, a, shifted) is None
    np.testing.assert_array_equal(tiercel.matmul(a, b, out=shifted), expected)


def test_unaligned_operands_take_the_long_way():
    a, b, out = operands()
    odd = np.frombuffer(bytearray(1) + bytearray(a.tobytes()), np.uint8)[1:]
    odd = odd.view(np.float32).reshape(N, N)
    assert again(odd, b, out) is None
    np.testing.assert_array_equal(tiercel.matmul(odd, b), a @ b)


def test_another_number_of_threads_is_planned_anew(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(repeated, "allowed", lambda: 2)
    a, b, out = operands()
    assert again(a, b, out) is None


def test_passes_over_parts_of_k_are_repeated_whole(monkeypatch: pytest.MonkeyPatch):
    """A workspace for half of K: the second pass adds to C what the first one stored."""
    made = tiercel.plan(600, 640, 4200, threads=1, scheme="strassen", workspace=5 << 20)
    assert made.chosen.recipe is not None
    assert made.chosen.recipe.blocking.k_span < 4200
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, s).astype(np.float32) for s in ((600, 4200), (4200, 640)))
    out = np.empty((600, 640), np.float32)
    repeated.remember(made, a, b, out, product.Request(DEFAULT))
    for _ in range(3):
        out[...] = np.nan
        assert again(a, b, out) is out
        np.testing.assert_array_equal(out, a @ b)
