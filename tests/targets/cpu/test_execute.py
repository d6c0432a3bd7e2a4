"""``execute`` on small integers, where every correct program gives the exact product."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.targets.cpu.recipes import (
    DTYPES,
    LAYOUTS,
    SMALL,
    STORAGE,
    embedded,
    exact,
    integers,
    recipe,
    tile,
)
from tiercel.lower.blocking import Target
from tiercel.lower.recipe import Recipe
from tiercel.targets.cpu.kernel import execute

SCHEMES = (None, "strassen", "hopcroft-kerr-2x3x4")
SHARED = replace(SMALL, share_a=True)
IN_TURN = replace(SMALL, in_turn=True)


def check(
    made: Recipe, dtype: str, layouts: Sequence[str] = ("row", "row", "row"), seed: int = 0
) -> None:
    """NaN around the operands must not get in; nothing but C's NaN may be overwritten."""
    rng = np.random.default_rng(seed)
    a, _ = embedded(integers(rng, (made.M, made.K), dtype), layouts[0])
    b, _ = embedded(integers(rng, (made.K, made.N), dtype), layouts[1])
    c, whole = embedded(np.full((made.M, made.N), np.nan, DTYPES[dtype]), layouts[2], around=-7)
    assert execute(made, a, b, c)
    result = whole.copy()
    c[...] = exact(a, b, dtype)
    np.testing.assert_array_equal(result, whole)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_layout_of_every_matrix(dtype: str, scheme: str | None):
    made = recipe(29, 50, 41, scheme, dtype)
    for layouts in product(LAYOUTS, repeat=3):
        check(made, dtype, layouts)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_repeated_rows_and_columns(dtype: str, scheme: str | None):
    """Zero strides, as ``np.broadcast_to`` makes them."""
    rng = np.random.default_rng(0)
    made = recipe(29, 50, 41, scheme, dtype)
    shapes_a, shapes_b = ((1, 41), (29, 1), (1, 1)), ((1, 50), (41, 1), (1, 1))
    for shape_a, shape_b in product(shapes_a, shapes_b):
        a = np.broadcast_to(integers(rng, shape_a, dtype), (29, 41))
        b = np.broadcast_to(integers(rng, shape_b, dtype), (41, 50))
        c = np.full((29, 50), np.nan, DTYPES[dtype])
        assert execute(made, a, b, c)
        np.testing.assert_array_equal(c, exact(a, b, dtype))


def near(*sizes: int) -> list[int]:
    return sorted({1, *(s + d for s in sizes for d in (-1, 0, 1))} - {0})


@pytest.mark.parametrize("scheme", [None, "strassen"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_sizes_around_the_register_tile(dtype: str, scheme: str | None):
    t = tile(dtype)
    for M, N, K in product(near(t.mr, 2 * t.mr), near(t.nr), near(t.chunk)):
        check(recipe(M, N, K, scheme, dtype), dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_transposed_sizes_around_the_register_tile(dtype: str):
    t = tile(dtype)
    for M, N, K in product(near(t.mr, 2 * t.mr), near(t.nr), near(t.chunk)):
        check(recipe(M, N, K, None, dtype), dtype, ("column", "column", "column"))


@pytest.mark.parametrize("scheme", [None, "strassen", "laderman"])
def test_sizes_around_a_whole_step(scheme: str | None):
    whole = recipe(60, 90, 96, scheme).blocking
    for M, N, K in product(near(whole.mc)[1:], near(whole.nc)[1:], near(whole.kc)[1:]):
        check(recipe(M, N, K, scheme), "float32")


@settings(max_examples=150, deadline=None)
@given(
    size=st.tuples(*[st.integers(1, 80)] * 3),
    scheme=st.sampled_from([*SCHEMES, "winograd", "laderman"]),
    dtype=st.sampled_from(list(DTYPES)),
    layouts=st.tuples(*[st.sampled_from(LAYOUTS)] * 3),
    target=st.builds(
        Target,
        rows=st.integers(1, 60),
        depth=st.integers(1, 60),
        cols=st.integers(1, 60),
        task_cols=st.integers(1, 60),
        k_span=st.just(10**9),
        share_a=st.booleans(),
    ),
    threads=st.integers(1, 3),
    seed=st.integers(0, 9),
)
def test_any_blocking(size, scheme, dtype, layouts, target, threads, seed):
    M, N, K = size
    made = recipe(M, N, K, scheme, dtype, target=target, threads=threads)
    check(made, dtype, layouts, seed)


@pytest.mark.parametrize("scheme", [None, "strassen2"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("k_span", [16, 26, 40])
def test_k_in_several_passes(dtype: str, scheme: str | None, k_span: int):
    target = Target(12, 16, 32, 16, k_span=k_span)
    made = recipe(29, 50, 77, scheme, dtype, target=target)
    assert made.blocking.k_span < 77
    for layouts in (("row", "column", "row"), ("column", "row", "strided")):
        check(made, dtype, layouts)


@pytest.mark.parametrize("scheme", [None, "strassen", "strassen2"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "complex64"])
@pytest.mark.parametrize("threads", [1, 2])
def test_threads_share_the_packed_sums_of_a(dtype: str, scheme: str | None, threads: int):
    made = recipe(50, 300, 70, scheme, dtype, target=SHARED, threads=threads)
    assert made.blocking.packed_a > 0
    for layouts in (("row", "column", "row"), ("strided", "row", "column")):
        check(made, dtype, layouts)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("threads", [1, 2])
def test_tasks_pack_their_panels_of_b_in_turn(dtype: str, threads: int):
    made = recipe(29, 150, 41, None, dtype, target=IN_TURN, threads=threads)
    assert made.blocking.packed == 0
    for layouts in product(LAYOUTS, repeat=3):
        check(made, dtype, layouts)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_panels_in_turn_at_sizes_around_the_register_tile(dtype: str):
    t = tile(dtype)
    for M, N, K in product(near(t.mr), near(t.nr, 4 * t.nr), near(t.chunk, 2 * t.chunk)):
        for layouts in (("row", "row", "row"), ("column", "column", "column")):
            check(recipe(M, N, K, None, dtype, target=IN_TURN), dtype, layouts)


def test_packing_in_turn_changes_no_bit():
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s, np.float32) for s in ((50, 140), (140, 330)))
    results = []
    for target in (SMALL, IN_TURN):
        c = np.empty((50, 330), np.float32)
        assert execute(recipe(50, 330, 140, None, target=target), a, b, c)
        results.append(c)
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("scheme", [None, "strassen"])
@pytest.mark.parametrize("threads", [1, 2, 3, 5])
def test_last_tasks_are_cut_smaller_where_a_is_shared(threads: int, scheme: str | None):
    """Of 1 to 13 panels a task, in pieces that leave none out and repeat none."""
    for cols in (16, 48, 96, 208):
        target = Target(rows=12, depth=16, cols=416, task_cols=cols, k_span=10**9, share_a=True)
        check(recipe(60, 500, 41, scheme, target=target, threads=threads), "float32")


def test_sharing_a_changes_no_bit():
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s, np.float32) for s in ((150, 140), (140, 130)))
    results = []
    for target in (SHARED, replace(SHARED, share_a=False)):
        c = np.empty((150, 130), np.float32)
        assert execute(recipe(150, 130, 140, "strassen", target=target, threads=2), a, b, c)
        results.append(c)
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("scheme", [None, "strassen"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "complex64"])
def test_a_swapped_recipe_computes_the_transpose(dtype: str, scheme: str | None):
    rng = np.random.default_rng(0)
    made = replace(recipe(50, 20, 70, scheme, dtype), swapped=True)
    a, b = integers(rng, (20, 70), dtype), integers(rng, (70, 50), dtype)
    c = np.empty((20, 50), DTYPES[dtype])
    assert execute(made, a, b, c)
    np.testing.assert_array_equal(c, exact(a, b, dtype))


@pytest.mark.parametrize("scheme", [None, "strassen", "strassen2"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_same_bits_for_any_number_of_threads(dtype: str, scheme: str | None):
    rng = np.random.default_rng(0)
    real = STORAGE.get(dtype, dtype)
    a, b = (rng.standard_normal(s).astype(real) for s in ((150, 140), (140, 130)))
    if dtype == "complex128":
        a, b = a + 1j * a[::-1], b - 1j * b[:, ::-1]
    results = []
    for threads in (1, 2, 3):
        made = recipe(150, 130, 140, scheme, dtype, threads=threads)
        for _ in range(3):
            c = np.full((150, 130), np.nan, DTYPES[dtype])
            assert execute(made, a, b, c)
            results.append(c.tobytes())
    assert len(set(results)) == 1
    error = np.abs(c - a.astype(np.complex128) @ b).max()
    assert error < (1e-3 if dtype == "float32" else 1e-11)


@pytest.mark.parametrize("scheme", [None, "strassen"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("k_span", [10**9, 40])
def test_bias_is_added_once_to_every_row(dtype: str, scheme: str | None, k_span: int):
    if k_span < 77 and dtype in ("float16", "bfloat16"):
        k_span = 77  # passes over K would round in between
    rng = np.random.default_rng(0)
    target = Target(12, 16, 32, 16, k_span=k_span)
    for N in near(tile(dtype).nr, 50):
        made = recipe(29, N, 77, scheme, dtype, target=target)
        a, b, bias = (integers(rng, s, dtype) for s in ((29, 77), (77, N), (N,)))
        c, whole = embedded(np.full((29, N), np.nan, DTYPES[dtype]), "row", around=-7)
        assert execute(made, a, b, c, bias)
        wide = a.astype("f8") @ b.astype("f8") + bias.astype("f8")
        np.testing.assert_array_equal(c, wide.astype(DTYPES[dtype]))
        assert (whole != -7).sum() <= c.size


def test_operands_that_overlap_themselves():
    """A Hankel matrix as a view: both strides are one element."""
    line = np.arange(60, dtype=np.float32)
    a = np.lib.stride_tricks.sliding_window_view(line, 31)
    b = np.eye(31, 33, dtype=np.float32)
    for x, y in ((a, b), (b.T, a.T)):
        made = recipe(x.shape[0], y.shape[1], x.shape[1], "strassen", target=SMALL)
        c = np.full((x.shape[0], y.shape[1]), np.nan, np.float32)
        assert execute(made, x, y, c)
        np.testing.assert_array_equal(c, x @ y)


def test_operands_without_alignment():
    raw = np.zeros(4 * 40 * 40 + 1, np.uint8)
    a = raw[1:].view(np.float32).reshape(40, 40)
    a[...] = np.arange(1600).reshape(40, 40) % 7
    for x, y in ((a, np.eye(40, dtype="f4")), (np.eye(40, dtype="f4"), a)):
        c = raw.copy()[1:].view(np.float32).reshape(40, 40)
        assert execute(recipe(40, 40, 40, "strassen"), x, y, c)
        np.testing.assert_array_equal(c, a)
