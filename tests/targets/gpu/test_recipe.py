"""Which levels loop, which are computed at once, and the memory it takes."""

import pytest

from tiercel.schemes import get
from tiercel.targets.gpu.recipe import BYTES, GAP, plane_sizes, recipe_for, workspace_bytes

STRASSEN = get("strassen")


@pytest.mark.parametrize("levels", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_every_level_is_either_looped_or_computed_at_once(levels, dtype):
    recipe = recipe_for([STRASSEN] * levels, 4096, 4096, 4096, dtype)
    assert recipe is not None
    assert recipe.grid == (2**levels,) * 3
    assert recipe.products == 7**levels * (3 if dtype.startswith("complex") else 1)


def test_less_workspace_moves_levels_to_the_loop_and_then_gives_up():
    unlimited = workspace_bytes(
        4096, 4096, 4096, "float32", recipe_for([STRASSEN] * 2, 4096, 4096, 4096, "float32")
    )
    seen = []
    budget = unlimited
    while recipe := recipe_for([STRASSEN] * 2, 4096, 4096, 4096, "float32", workspace=budget):
        needed = workspace_bytes(4096, 4096, 4096, "float32", recipe)
        assert needed <= budget
        seen.append((len(recipe.outer.products), len(recipe.inner.products), recipe.batched))
        budget = needed - 1
    assert seen == [(1, 49, True), (1, 49, False), (7, 7, True), (49, 1, True)]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_results_are_rounded_once(dtype):
    assert recipe_for([STRASSEN] * 2, 4096, 4096, 4096, dtype, workspace=10**8) is None
    assert recipe_for([STRASSEN] * 3, 4096, 4096, 4096, dtype) is None


def test_planes_are_padded_to_whole_vectors():
    recipe = recipe_for([STRASSEN] * 2, 4095, 4097, 100, "float32")
    assert recipe is not None
    assert plane_sizes(4095, 4097, 100, recipe) == (1024, 1040, 32)


def test_products_one_by_one_save_the_planes_of_plain_blocks():
    """Of Strassen's operand sums 2 of 7 are plain blocks, of A and of B."""
    plane = 4096**2 * 4 + GAP
    for budget, planes in ((None, 7 + 7 + 7), (20 * plane, 5 + 5 + 7)):
        recipe = recipe_for([STRASSEN], 8192, 8192, 8192, "float32", workspace=budget)
        assert workspace_bytes(8192, 8192, 8192, "float32", recipe) == planes * plane
    odd = workspace_bytes(8191, 8192, 8192, "float32", recipe)
    assert odd == (7 + 5 + 7) * plane


def test_no_recipe_takes_no_memory():
    assert all(workspace_bytes(10, 10, 10, dtype, None) == 0 for dtype in BYTES)
