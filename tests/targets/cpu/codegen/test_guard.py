"""The run-time guard: which data a scheme refuses, and that it finds them wherever they are."""

from itertools import product

import numpy as np
import pytest

from tests.targets.cpu.recipes import embedded, recipe
from tiercel.lower.blocking import Target
from tiercel.lower.recipe import Guard
from tiercel.targets.cpu.kernel import execute

GUARD = Guard(limit=1e3, headroom=1e30)
M, N, K = 61, 70, 77


def normal(seed: int = 0, dtype: str = "float32") -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((M, K)).astype(dtype), rng.standard_normal((K, N)).astype(dtype)


def accepted(a: np.ndarray, b: np.ndarray, guard: Guard = GUARD, **options) -> bool:
    size = a.shape[0], b.shape[1], a.shape[1]
    made = recipe(*size, "strassen", a.dtype.name, guard=guard, **options)
    c = np.full(size[:2], np.nan, a.dtype)
    done = execute(made, a, b, c)
    if done:
        error = np.abs(c - a.astype("f8") @ b.astype("f8")).max()
        assert error < 1e-4 * np.abs(a).max() * np.abs(b).max() * a.shape[1]
    return done


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("threads", [1, 2])
def test_usual_data_are_accepted(dtype: str, threads: int):
    rng = np.random.default_rng(0)
    for seed in range(5):
        a, b = normal(seed, dtype)
        assert accepted(a, b, threads=threads)
        assert accepted(a * 1e-6, b * 1e6, threads=threads)
    a, b = rng.random((M, K)).astype(dtype), rng.random((K, N)).astype(dtype)
    assert accepted(a, b, threads=threads)
    assert accepted(a - 0.5, b - 0.5, threads=threads)


@pytest.mark.parametrize("layout", ["row", "column", "strided", "reversed"])
def test_what_lies_around_the_operands_is_not_looked_at(layout: str):
    a, b = normal()
    assert accepted(embedded(a, layout)[0], embedded(b, layout)[0])


EVERYWHERE = list(product((0, 5, 30, -1), (0, 7, 33, -1)))


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("threads", [1, 2])
def test_nan_and_inf_are_found_anywhere(poison: float, dtype: str, threads: int):
    for where in EVERYWHERE:
        for operand in (0, 1):
            pair = normal(dtype=dtype)
            pair[operand][where] = poison
            assert not accepted(*pair, threads=threads)


@pytest.mark.parametrize("scale", [1e-5, 1e5])
def test_a_badly_scaled_row_or_column_is_found_anywhere(scale: float):
    for line in (0, 5, 6, 30, 47, -1):
        a, b = normal()
        a[line] *= scale
        assert not accepted(a, b)
        a, b = normal()
        b[:, line] *= scale
        assert not accepted(a, b)


def test_scales_along_k_may_differ_within_a_block():
    """Terms of one sum lose the small ones with or without a scheme."""
    a, b = normal()
    a[:, ::2] *= 1e4
    b[::3] *= 1e4
    assert accepted(a, b)


def test_a_zero_row_is_refused():
    a, b = normal()
    a[17] = 0
    assert not accepted(a, b)
    a, b = normal()
    b[:, 17] = 0
    assert not accepted(a, b)
    assert not accepted(np.zeros_like(a), b)


def test_limit_is_the_product_of_both_operands_ratios():
    target = Target(64, 128, 128, 128, 10**9)  # two equal blocks along K = 96, of chunks of 8 or 16
    a, b = np.ones((M, 96), np.float32), np.ones((96, N), np.float32)
    a[7] *= 8
    b[:, 9] *= 16
    assert accepted(a, b, Guard(limit=128, headroom=1e30), target=target)
    assert not accepted(a, b, Guard(limit=127, headroom=1e30), target=target)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_near_overflow_are_refused(dtype: str):
    a, b = normal(dtype=dtype)
    huge = np.finfo(dtype).max / 8
    headroom = float(np.finfo(dtype).max) / 1e3
    guard = Guard(limit=1e3, headroom=headroom)
    assert accepted(a, b, guard)
    for x, y in ((a * 0 + huge, b), (a, b * 0 + huge)):
        assert not accepted(x, y, guard)
    root = np.sqrt(np.finfo(dtype).max)
    assert not accepted(a * root, b * root, guard)


@pytest.mark.parametrize("share_a", [False, True])
def test_every_pass_over_k_is_guarded(share_a: bool):
    target = Target(12, 16, 32, 16, k_span=26, share_a=share_a)
    assert accepted(*normal(), target=target)
    for k in (0, 30, 76):
        a, b = normal()
        a[40, k] = np.inf
        assert not accepted(a, b, target=target)
        a, b = normal()
        b[k, 40] = np.nan
        assert not accepted(a, b, target=target)


@pytest.mark.parametrize("scheme", ["strassen", "strassen2"])
@pytest.mark.parametrize("share_a", [False, True])
def test_a_short_end_of_k_is_no_other_scale(scheme: str, share_a: bool):
    target = Target(64, 128, 128, 128, k_span=10**9, share_a=share_a)
    guard = Guard(limit=16.0, headroom=1e30)
    for K in (100, 257, 258, 513, 545, 641, 1281):
        rng = np.random.default_rng(K)
        a, b = (rng.standard_normal(size).astype("f4") for size in ((M, K), (K, N)))
        made = recipe(M, N, K, scheme, guard=guard, target=target)
        assert execute(made, a, b, np.empty((M, N), "f4")), K
        a[40, -1] = 1e7
        assert not execute(made, a, b, np.empty((M, N), "f4")), K
        a[40, -1], b[-1, 17] = 1, 1e7
        assert not execute(made, a, b, np.empty((M, N), "f4")), K


def test_without_a_guard_nan_and_inf_spread_as_in_numpy():
    a, b = normal()
    a[3, 5], a[20, 70], b[40, 69], b[2, 1] = np.nan, np.inf, -np.inf, np.nan
    c = np.zeros((M, N), np.float32)
    assert execute(recipe(M, N, K), a, b, c)
    with np.errstate(invalid="ignore"):
        expected = a @ b
    np.testing.assert_array_equal(np.isnan(c), np.isnan(expected))
    np.testing.assert_array_equal(np.isinf(c), np.isinf(expected))


def test_complex_parts_are_guarded_each():
    rng = np.random.default_rng(0)
    a = rng.standard_normal((M, K)) + 1j * rng.standard_normal((M, K))
    b = rng.standard_normal((K, N)) + 1j * rng.standard_normal((K, N))
    made = recipe(M, N, K, "strassen", "complex128", guard=GUARD)
    c = np.empty((M, N), complex)
    assert execute(made, a, b, c)
    a.imag[60, 76] = np.nan
    assert not execute(made, a, b, c)
    a.imag[60, 76] = 0
    b.real[0, 69] = np.inf
    assert not execute(made, a, b, c)
