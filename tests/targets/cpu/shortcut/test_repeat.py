"""``Repeat`` computes what ``execute`` does, for arrays that differ in their addresses only."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from tests.targets.cpu.recipes import (
    DTYPES,
    LAYOUTS,
    SMALL,
    embedded,
    exact,
    integers,
    recipe,
)
from tiercel.lower.recipe import Guard, Recipe
from tiercel.targets.cpu import workspace
from tiercel.targets.cpu.params import DONE, REFUSED, UNLIKE
from tiercel.targets.cpu.shortcut.repeat import Repeat, repeatable

M, N, K = 29, 50, 41
GUARD = Guard(limit=1e3, headroom=1e30)


def operands(dtype: str, layouts: tuple[str, ...], seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    made = (integers(rng, shape, dtype) for shape in ((M, K), (K, N), (M, N)))
    return [embedded(x, layout)[0] for x, layout in zip(made, layouts, strict=True)]


def check(made: Recipe, dtype: str = "float32", layouts: tuple[str, ...] = ("row",) * 3) -> None:
    repeat = Repeat(made, *operands(dtype, layouts, 0))
    for seed in (1, 2, 3):
        a, b, c = operands(dtype, layouts, seed)
        assert repeat(a, b, c) == DONE
        np.testing.assert_array_equal(c, exact(a, b, dtype))


@pytest.mark.parametrize("scheme", [None, "strassen"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_layout(dtype: str, scheme: str | None):
    made = recipe(M, N, K, scheme, dtype)
    for layouts in product(LAYOUTS, repeat=3):
        check(made, dtype, layouts)


@pytest.mark.parametrize("threads", [1, 2])
def test_swapped_products_are_repeated(threads: int):
    check(replace(recipe(N, M, K, threads=threads), swapped=True))


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("scheme", [None, "strassen"])
def test_products_of_several_threads_are_repeated(threads: int, scheme: str | None):
    check(recipe(M, N, K, scheme, threads=threads))


@pytest.mark.parametrize("threads", [1, 2])
def test_many_at_once(threads: int):
    repeat = Repeat(recipe(M, N, K, "strassen", threads=threads), *operands("float32", ROWS, 0))

    def work(seed: int) -> bool:
        a, b, c = operands("float32", ROWS, seed)
        return repeat(a, b, c) == DONE and np.array_equal(c, exact(a, b, "float32"))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(200)))


def test_another_workspace_each_time():
    repeat = Repeat(recipe(M, N, K, "strassen"), *operands("float32", ROWS, 0))
    for seed in range(4):
        a, b, c = operands("float32", ROWS, seed)
        with workspace.borrow(1):
            assert repeat(a, b, c) == DONE
        np.testing.assert_array_equal(c, exact(a, b, "float32"))
        if seed % 2:
            workspace.release()


def test_data_that_the_guard_refuses():
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((61, 77), (77, 70)))
    c = np.empty((61, 70), np.float32)
    repeat = Repeat(recipe(61, 70, 77, "strassen", guard=GUARD), a, b, c)
    assert repeat(a, b, c) == DONE
    a[3, 5] = np.nan
    assert repeat(a, b, c) == REFUSED
    a[3, 5] = 0
    assert repeat(a, b, c) == DONE


def test_overlap_is_found_to_the_element():
    repeat = Repeat(recipe(M, K, K), *(np.zeros(s, np.float32) for s in ((M, K), (K, K), (M, K))))
    whole, b = np.zeros(2 * M * K + 1, np.float32), np.ones((K, K), np.float32)
    a = whole[: M * K].reshape(M, K)
    for start, state in ((M * K, DONE), (M * K - 1, UNLIKE), (0, UNLIKE), (M * K + 1, DONE)):
        assert repeat(a, b, whole[start : start + M * K].reshape(M, K)) == state
    behind = whole[M * K : 2 * M * K].reshape(M, K)
    assert repeat(behind, b, whole[: M * K].reshape(M, K)) == DONE
    assert repeat(behind, b, whole[1 : M * K + 1].reshape(M, K)) == UNLIKE


def test_unaligned_arrays():
    repeat = Repeat(recipe(M, N, K), *operands("float32", ROWS, 0))
    for odd in range(3):
        arrays = operands("float32", ROWS, 1)
        x = arrays[odd]
        moved = np.frombuffer(bytearray(x.nbytes + 1), np.uint8)[1:].view(np.float32)
        arrays[odd] = moved.reshape(x.shape)
        assert repeat(*arrays) == UNLIKE


def test_products_of_several_steps_are_not_repeatable():
    """Levels around the loops, and passes over parts of K."""
    assert repeatable(recipe(M, N, K, "strassen"))
    assert not repeatable(recipe(64, 64, 64, outer="strassen"))
    assert not repeatable(recipe(64, 64, 64, target=replace(SMALL, k_span=32)))


ROWS = ("row", "row", "row")
