"""Outer levels: the steps cover the product exactly once, whatever does not divide evenly."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiercel import schemes
from tiercel.lower.blocking import Target, Tile, blocking, ceil_div
from tiercel.lower.program import lower
from tiercel.lower.recipe import Recipe
from tiercel.lower.steps import View, steps, sub_problem

OUTER = (None, "strassen", "winograd", "strassen2", "laderman", "hopcroft-kerr-2x3x4")


def recipe(M: int, N: int, K: int, outer: str | None, k_span: int) -> Recipe:
    around = outer and lower(schemes.get(outer))
    parts = (around.m, around.n, around.k) if around else (1, 1, 1)
    m, n, k = (ceil_div(size, part) for size, part in zip((M, N, K), parts, strict=True))
    inner, target = lower(None), Target(12, 16, 32, 16, k_span)
    made = blocking(
        m, n, k, inner, Tile(6, 16, 8, 4), target, views=around.widest("b") if around else 0
    )
    return Recipe(M, N, K, inner, made, "float32", "float32", None, 1, None, around or None)


recipes = st.builds(
    recipe,
    *[st.integers(1, 40)] * 3,
    outer=st.sampled_from(OUTER),
    k_span=st.sampled_from([3, 8, 10**9]),
)


def window(x: np.ndarray, view: View, rows: int, cols: int) -> np.ndarray:
    """A view of an operand, filled up with zeros to the size of the step."""
    out = np.zeros((rows, cols), x.dtype)
    part = x[view.row : view.row + view.rows, view.col : view.col + view.cols]
    assert part.shape == (view.rows, view.cols), "a view must lie inside its operand"
    out[: view.rows, : view.cols] = int(view.coef) * part
    return out


@settings(deadline=None)
@given(made=recipes, seed=st.integers(0, 9))
def test_steps_compute_the_product(made: Recipe, seed: int):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(-9, 10, (made.M, made.K)), rng.integers(-9, 10, (made.K, made.N))
    c = np.full((made.M, made.N), 10**9)
    for step in steps(made):
        left = np.sum([window(a, view, step.M, step.K) for view in step.a], axis=0)
        right = np.sum([window(b, view, step.K, step.N) for view in step.b], axis=0)
        product = left @ right
        for target in step.c:
            v = target.view
            part = c[v.row : v.row + v.rows, v.col : v.col + v.cols]
            part *= int(not target.first)
            part += int(v.coef) * product[: v.rows, : v.cols]
    np.testing.assert_array_equal(c, a @ b)


@settings(deadline=None)
@given(made=recipes)
def test_views_tile_each_operand(made: Recipe):
    for operand, shape in (
        ("a", (made.M, made.K)),
        ("b", (made.K, made.N)),
        ("c", (made.M, made.N)),
    ):
        views = {
            (v.row, v.col, v.rows, v.cols)
            for step in steps(made)
            for v in (getattr(x, "view", x) for x in getattr(step, operand))
            if v.rows and v.cols
        }
        times = np.zeros(shape, int)
        for row, col, rows, cols in views:
            times[row : row + rows, col : col + cols] += 1
        assert (times == 1).all()


@settings(deadline=None)
@given(made=recipes)
def test_first_overwrites_and_last_ends_each_block(made: Recipe):
    seen: dict[tuple[int, ...], list[tuple[bool, bool]]] = {}
    for step in steps(made):
        for target in step.c:
            v = target.view
            if v.rows and v.cols:
                flags = seen.setdefault((v.row, v.col), [])
                flags.append((target.first, target.last))
    for flags in seen.values():
        first, last = zip(*flags, strict=True)
        assert [i for i, flag in enumerate(first) if flag] == [0]
        assert [i for i, flag in enumerate(last) if flag] == [len(flags) - 1]


@settings(deadline=None)
@given(made=recipes)
def test_steps_stay_within_the_blocking(made: Recipe):
    M, N, K = sub_problem(made)
    deepest = min(K, made.blocking.k_span)
    for step in steps(made):
        assert (step.M, step.N) == (M, N)
        assert deepest >= step.K
        for v in step.a:
            assert v.rows <= M
            assert v.cols <= step.K
        for v in step.b:
            assert v.rows <= step.K
            assert v.cols <= N


@pytest.mark.parametrize(("K", "passes"), [(8, 1), (13, 2), (24, 3)])
def test_without_an_outer_level_only_k_is_split(K: int, passes: int):
    made = recipe(5, 6, K, None, 8)
    found = steps(made)
    assert len(found) == passes
    assert sum(step.K for step in found) == K
    assert all(len(step.a) == len(step.b) == len(step.c) == 1 for step in found)
    assert [step.c[0].first for step in found] == [True] + [False] * (passes - 1)
    assert [step.c[0].last for step in found] == [False] * (passes - 1) + [True]


def test_a_step_for_each_product_of_the_outer_scheme():
    assert len(steps(recipe(40, 40, 40, "strassen", 10**9))) == 7
    assert len(steps(recipe(40, 40, 40, "strassen2", 10**9))) == 49
