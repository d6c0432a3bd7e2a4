"""The planner's formulas for workspace against what the targets really take."""

from dataclasses import replace

import pytest

from tiercel.lower.accumulator import accumulate
from tiercel.planner.gpu import memory
from tiercel.planner.gpu.variants import named
from tiercel.planner.problem import Problem
from tiercel.schemes import get
from tiercel.targets.gpu.recipe import recipe_for, workspace_bytes
from tiercel.targets.hopper.config import SLOT_BYTES
from tiercel.targets.hopper.fused import tables

SIZES = [(4096, 4096, 4096), (1000, 777, 515), (8192, 28672, 8190)]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
@pytest.mark.parametrize(
    "name", ["strassen", "strassen2", "strassen3", "laderman", "winograd2", "strassen*lean-4x2x4"]
)
@pytest.mark.parametrize(("M", "N", "K"), SIZES)
def test_portable_bytes_are_those_of_the_recipe(M: int, N: int, K: int, name: str, dtype: str):
    problem, variant = Problem(M, N, K, dtype), named(name)
    levels = variant.schemes
    ways = list(memory.splits(problem, variant))
    whole = recipe_for(levels, M, N, K, dtype)
    assert (whole is None) == (not ways)
    for way in ways:
        size = memory.portable_bytes(problem, way)
        # What is passed on as the target's workspace makes it take the same split.
        recipe = recipe_for(levels, M, N, K, dtype, workspace=size)
        assert recipe is not None
        assert (recipe.batched, len(recipe.inner.products)) == (
            True,
            len(way.inner(problem.is_complex).products),
        )
        assert workspace_bytes(M, N, K, dtype, recipe) == size


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_fused_bytes_count_the_planes_that_the_kernel_reads(dtype: str):
    scheme = get("winograd")
    lowered = tables.lower(accumulate(scheme), dtype)
    problem = Problem(8192, 4096, 2048, dtype)
    left = 2 * sum(p.written for p in lowered.a_planes) * 4096 * 1024
    right = 2 * sum(p.written for p in lowered.b_planes) * 1024 * 2048
    heads = 2 if dtype == "bfloat16" else 1  # run ahead while idle warps combine
    saved = heads * 132 * lowered.slots * SLOT_BYTES
    assert memory.fused_bytes(problem, scheme, 132) == left + right + saved
    packed = replace(problem, static_b=True)
    assert memory.fused_bytes(packed, scheme, 132) == left + saved


def test_fused_bytes_count_the_tiles_that_are_begun():
    scheme = get("lean-4x2x4")
    slots = len(accumulate(scheme).slot_kinds)
    for n, blocks in ((8192, 128), (16384, 132)):  # 64 tiles of two blocks, and more than one turn
        problem = Problem(n, n, n, "bfloat16", static_b=True)
        left, _ = memory.fused_planes(problem, scheme)
        assert memory.fused_bytes(problem, scheme, 132) - left == blocks * slots * SLOT_BYTES


def test_the_callers_cap_counts_and_otherwise_the_operands_and_the_gpu():
    assert memory.workspace_cap(Problem(9, 9, 9, workspace=5), 1 << 40) == 5
    small, large = Problem(100, 100, 100), Problem(20000, 20000, 20000)
    assert memory.workspace_cap(small, 1 << 40) == memory.LEAST_WORKSPACE
    assert memory.workspace_cap(large, 1 << 40) == pytest.approx(3.1 * 3 * 4 * 20000**2)
    assert memory.workspace_cap(large, 8 << 30) == 1 << 30
