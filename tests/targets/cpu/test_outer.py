"""Outer levels around the compiled loops: exact products, one epilogue, a guard on every view."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from tests.targets.cpu.recipes import DTYPES, LAYOUTS, SMALL, embedded, exact, integers, recipe
from tiercel.lower.blocking import Target
from tiercel.lower.recipe import Guard
from tiercel.targets.cpu.kernel import execute, pack

OUTER = (None, "strassen", "strassen2", "laderman")
INNER = (None, "strassen", "strassen2")
TYPES = ("float32", "float64", "complex64", "complex128")
SIZES = ((1, 1, 1), (3, 5, 7), (2, 71, 33), (64, 64, 64), (61, 70, 77), (100, 1, 130))
PASSES = Target(12, 16, 32, 16, k_span=10)
SHARED = replace(PASSES, share_a=True)


@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("target", [SMALL, PASSES, SHARED])
def test_any_size_is_exact(outer: str | None, inner: str | None, target: Target):
    rng = np.random.default_rng(0)
    for (M, N, K), dtype, threads in product(SIZES, TYPES, (1, 2)):
        made = recipe(M, N, K, inner, dtype, outer=outer, target=target, threads=threads)
        a, b = integers(rng, (M, K), dtype), integers(rng, (K, N), dtype)
        for right in (b, pack(made, b)):
            c, whole = embedded(np.full((M, N), np.nan, DTYPES[dtype]), "row", around=-7)
            assert execute(made, a, right, c)
            np.testing.assert_array_equal(c, exact(a, b, dtype))
            assert (whole == -7).sum() >= whole.size - c.size


@pytest.mark.parametrize("outer", ["strassen", "laderman"])
@pytest.mark.parametrize("dtype", TYPES)
def test_every_layout_of_every_matrix(dtype: str, outer: str):
    rng = np.random.default_rng(0)
    made = recipe(37, 50, 41, "strassen", dtype, outer=outer, target=PASSES)
    for layouts in product(LAYOUTS, repeat=3):
        a, _ = embedded(integers(rng, (37, 41), dtype), layouts[0])
        b, _ = embedded(integers(rng, (41, 50), dtype), layouts[1])
        c, whole = embedded(np.full((37, 50), np.nan, DTYPES[dtype]), layouts[2], around=-7)
        assert execute(made, a, b, c)
        result = whole.copy()
        c[...] = exact(a, b, dtype)
        np.testing.assert_array_equal(result, whole)


@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("target", [SMALL, PASSES, SHARED])
@pytest.mark.parametrize("dtype", TYPES)
def test_bias_is_added_once(dtype: str, target: Target, outer: str | None):
    rng = np.random.default_rng(0)
    for M, N, K in ((1, 1, 1), (29, 50, 77), (64, 65, 66)):
        made = recipe(M, N, K, "strassen", dtype, outer=outer, target=target)
        a, b, bias = (integers(rng, s, dtype) for s in ((M, K), (K, N), (N,)))
        for right in (b, pack(made, b)):
            c = np.full((M, N), np.nan, DTYPES[dtype])
            assert execute(made, a, right, c, bias)
            np.testing.assert_array_equal(c, exact(a, b, dtype) + bias)


@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("target", [SMALL, PASSES, SHARED])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("with_bias", [False, True])
def test_activation_is_applied_once_to_the_finished_sum(
    dtype: str, target: Target, outer: str | None, with_bias: bool
):
    """ReLU on a partial sum, or before the bias, would change these integers."""
    rng = np.random.default_rng(0)
    M, N, K = 29, 50, 77
    made = recipe(M, N, K, None, dtype, outer=outer, target=target, activation="relu")
    a, b = integers(rng, (M, K), dtype), integers(rng, (K, N), dtype)
    bias = 20 * integers(rng, (N,), dtype) if with_bias else None
    c = np.full((M, N), np.nan, DTYPES[dtype])
    assert execute(made, a, b, c, bias)
    expected = exact(a, b, dtype) + (0 if bias is None else bias)
    assert (expected < 0).any()
    np.testing.assert_array_equal(c, np.maximum(expected, 0))


@pytest.mark.parametrize("outer", ["strassen", "strassen2", "laderman"])
@pytest.mark.parametrize("inner", [None, "strassen"])
def test_same_bits_for_any_number_of_threads_and_for_packed_b(outer: str, inner: str | None):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype("f4") for s in ((150, 140), (140, 130)))
    results = set()
    for threads in (1, 2, 3):
        made = recipe(150, 130, 140, inner, outer=outer, threads=threads)
        for right in (b, pack(made, b)):
            c = np.full((150, 130), np.nan, np.float32)
            assert execute(made, a, right, c)
            results.add(c.tobytes())
    assert len(results) == 1


# --- the guard ------------------------------------------------------------------------------------

GUARD = Guard(limit=16, headroom=1e30)
WIDE = Target(48, 64, 64, 64, 10**9)


def accepted(a: np.ndarray, b: np.ndarray, outer: str, inner: str | None, **options) -> set[bool]:
    """Answers of the guard for B as it is and for B packed ahead."""
    (M, K), N = a.shape, b.shape[1]
    options = {"target": WIDE, "guard": GUARD} | options
    made = recipe(M, N, K, inner, a.dtype.name, outer=outer, **options)
    c = np.empty((M, N), a.dtype)
    return {execute(made, a, right, c) for right in (b, pack(made, b))}


def normal(M: int, N: int, K: int, dtype: str = "float32") -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((M, K)).astype(dtype), rng.standard_normal((K, N)).astype(dtype)


LEVELS = [("strassen", None), ("strassen", "strassen"), ("winograd", None), ("laderman", None)]


@pytest.mark.parametrize(("outer", "inner"), LEVELS)
@pytest.mark.parametrize("size", [(192, 192, 288), (193, 191, 287), (97, 275, 361)])
@pytest.mark.parametrize("threads", [1, 2])
def test_usual_data_are_accepted(outer: str, inner: str | None, size, threads: int):
    """Also where the views at an edge are cut: their padding is no row or column of norm 0."""
    assert accepted(*normal(*size), outer, inner, threads=threads) == {True}


@pytest.mark.parametrize(("outer", "inner"), LEVELS)
@pytest.mark.parametrize("threads", [1, 2])
def test_scales_that_differ_between_views_are_refused(outer: str, inner: str | None, threads: int):
    """Each view is even in itself; the sum of a large and a small one looks large."""
    M, N, K = 192, 192, 288
    block_rows, block_cols = (64, 64) if outer == "laderman" else (96, 96)
    for row in range(0, M, block_rows):
        a, b = normal(M, N, K)
        a[row : row + block_rows] *= 1e-4
        assert accepted(a, b, outer, inner, threads=threads) == {False}
    for col in range(0, N, block_cols):
        a, b = normal(M, N, K)
        b[:, col : col + block_cols] *= 1e-4
        assert accepted(a, b, outer, inner, threads=threads) == {False}


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("outer", "inner"), LEVELS)
def test_nan_and_inf_are_found_in_every_view(poison: float, outer: str, inner: str | None):
    for i, j in product((0, 70, 100, -1), repeat=2):
        for operand in (0, 1):
            pair = normal(193, 191, 289)
            pair[operand][i, j] = poison
            assert accepted(*pair, outer, inner) == {False}


@pytest.mark.parametrize("k_span", [80, 10**9])
def test_guard_looks_at_every_pass_over_k(k_span: int):
    target = Target(48, 64, 64, 64, k_span)
    a, b = normal(192, 192, 320)
    assert accepted(a, b, "strassen", None, target=target) == {True}
    for k in (0, 100, 200, 319):
        a, b = normal(192, 192, 320)
        b[k, 7] = 1e6
        assert accepted(a, b, "strassen", None, target=target) == {False}


def test_parts_of_complex_operands_are_guarded_each():
    real, imaginary = normal(192, 192, 192, "float64"), normal(192, 192, 192, "float64")[::-1]
    a, b = (x + 1j * y for x, y in zip(real, imaginary, strict=True))
    assert accepted(a, b, "strassen", None) == {True}
    for operand in (0, 1):
        pair = [a.copy(), b.copy()]
        pair[operand].imag[100:, 100:] *= 1e-6
        assert accepted(pair[0], pair[1], "strassen", None) == {False}
