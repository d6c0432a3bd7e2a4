"""Workspace of a variant, and which levels fit into it: the portable target's rules, as formulas.

All levels that one kernel can hold are computed at once: their planes of A and B, and all their
products, are in memory together. Each level around them divides that by its number of products.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tiercel.lower.accumulator import Multiply, accumulate
from tiercel.lower.accumulator.combining import Amount, Combining, choose
from tiercel.lower.blocking import ceil_div
from tiercel.planner.gpu.variants import Variant
from tiercel.planner.problem import Problem
from tiercel.schemes import Scheme

#: As in ``targets/gpu/recipe.py``: sides of planes, bytes between them, and what one combination
#: kernel holds.
ALIGN, GAP, MOST_PRODUCTS, MOST_BLOCKS = 16, 512, 72, 36

#: Extra memory by default: at least a GiB, and at most an eighth of the GPU's memory. In between,
#: what two levels of a 2×2×2 scheme at once take: 3.06 times the operands and the result.
LEAST_WORKSPACE, SHARE, USUAL = 1 << 30, 8, 3.1

#: Bytes of a plane's and of a product's real element.
BYTES = {
    "float16": (2, 4), "bfloat16": (2, 4), "float32": (4, 4), "float64": (8, 8),
    "complex64": (4, 4), "complex128": (8, 8),
}  # fmt: skip


def workspace_cap(problem: Problem, device_memory: int) -> int:
    """Bytes of extra memory that a plan may use."""
    if problem.workspace is not None:
        return problem.workspace
    usual = problem.operand_bytes + problem.itemsize * problem.M * problem.N
    return min(max(LEAST_WORKSPACE, int(USUAL * usual)), device_memory // SHARE)


def plane_sizes(problem: Problem, variant: Variant) -> tuple[int, int, int]:
    """(M, N, K) of one real product of a portable variant."""
    outer, inner = variant.outer(), variant.inner(problem.is_complex)
    return (
        ALIGN * ceil_div(problem.M, outer.m * inner.m * ALIGN),
        ALIGN * ceil_div(problem.N, outer.n * inner.n * ALIGN),
        ALIGN * ceil_div(problem.K, outer.k * inner.k * ALIGN),
    )


def splits(problem: Problem, variant: Variant) -> Iterator[Variant]:
    """The portable variant with as many levels at once as possible, then with fewer."""
    # What is left of a complex product when all levels are around are Gauss's three products.
    for around in range(len(variant.schemes) + problem.is_complex):
        if around and BYTES[problem.dtype][0] == 2:
            return  # 16-bit results are rounded once
        inner = replace(variant, around=around).inner(problem.is_complex)
        blocks = max(inner.m * inner.k, inner.k * inner.n, inner.m * inner.n) * inner.planes
        if len(inner.products) <= MOST_PRODUCTS and blocks <= MOST_BLOCKS:
            yield replace(variant, around=around)


def portable_bytes(problem: Problem, variant: Variant) -> int:
    """Bytes beyond operands and result; planes of a static B are counted where it was packed."""
    operand, result = BYTES[problem.dtype]
    h, w, d = plane_sizes(problem, variant)
    count = len(variant.inner(problem.is_complex).products)
    planes = h * d * operand + GAP + (0 if problem.static_b else d * w * operand + GAP)
    return count * (planes + h * w * result + GAP)


def plain_bytes(problem: Problem) -> int:
    """Bytes of the operand that the classical kernel copies: TF32 is read along K.

    Only one operand can go through registers instead (``targets/hopper/operands/tf32.py``).
    """
    copies = problem.dtype == "tfloat32" and problem.crossed
    return problem.itemsize * problem.K * min(problem.M, problem.N) if copies else 0


#: Tile of a thread block of the fused kernel, and thread blocks that share B.
FUSED_TILE, FUSED_CLUSTER = (128, 256), 2
#: Bytes of a tile's saved sum: float16 values, and a float32 scale of each of 256 threads.
FUSED_SLOT = 2 * 128 * 256 + 4 * 256


def fused_planes(problem: Problem, scheme: Scheme) -> tuple[int, int]:
    """Bytes of the planes of A and of B: float16, or float32 of TF32 operands.

    A plain block that meets a sum of the other operand is a plane as well, if planes are of another
    type than operands.
    """
    program = accumulate(scheme)
    pairs = {(step.a, step.b) for step in program.steps if isinstance(step, Multiply)}
    of_a, of_b = program.a_planes, program.b_planes
    combined = [(a, b) for a, b in pairs if not (of_a[a].plain and of_b[b].plain)]
    copied = problem.dtype == "bfloat16"
    left = {a for a, _ in combined if copied or not of_a[a].plain}
    right = {b for _, b in combined if copied or not of_b[b].plain}
    k, item = problem.K // scheme.k, problem.itemsize
    return (
        item * len(left) * (problem.M // scheme.m) * k,
        item * len(right) * k * (problem.N // scheme.n),
    )


def fused_bytes(problem: Problem, scheme: Scheme, multiprocessors: int) -> int:
    """Bytes for planes and for the partial sums of tiles that are begun and not finished.

    Planes of a packed B are counted where it was packed.
    """
    (left, right), program = fused_planes(problem, scheme), accumulate(scheme)
    of_a = left + problem.M * problem.K * problem.itemsize
    of_b = 0 if problem.static_b else right + problem.K * problem.N * problem.itemsize
    down, across = FUSED_TILE
    rows = ceil_div(problem.M // scheme.m, FUSED_CLUSTER * down)
    columns = ceil_div(problem.N // scheme.n, across)
    clusters = multiprocessors // FUSED_CLUSTER
    k_tiles = ceil_div(problem.K // scheme.k * problem.itemsize, 128) * program.multiplies
    amount = Amount.of(rows, columns, clusters, k_tiles, of_a, of_b)
    how = choose(amount, program, judged=problem.itemsize < 4)
    if how.where == "beside" and problem.dtype == "float16":
        how = Combining()
    blocks = min(clusters, amount.tiles + how.clusters) * FUSED_CLUSTER
    saved = blocks * max(1, how.split) * len(program.slot_kinds) * FUSED_SLOT
    return left + (0 if problem.static_b else right) + saved + fused_copies(problem)


def fused_copies(problem: Problem) -> int:
    """Bytes of operands that are copied because a scheme's TF32 planes lie along K."""
    if problem.dtype != "tfloat32":
        return 0
    of_a = problem.M * problem.K * (problem.layout_a == "col")
    of_b = problem.K * problem.N * (problem.layout_b == "row" and not problem.static_b)
    return problem.itemsize * (of_a + of_b)
