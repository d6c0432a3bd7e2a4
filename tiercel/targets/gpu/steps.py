"""One 2-D product: the steps of the outer level, each combine, multiply, finish."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tiercel.lower.program import Product, Term
from tiercel.lower.recipe import Guard
from tiercel.targets.gpu import planes
from tiercel.targets.gpu.multiply import multiply
from tiercel.targets.gpu.operand import PLANE, RESULT, Operand, operand
from tiercel.targets.gpu.packed import Packed, Planes
from tiercel.targets.gpu.recipe import Recipe, plane_sizes, read_in_place
from tiercel.targets.gpu.scale import growth_bits


@dataclass(frozen=True)
class Call:
    """``out = alpha · a · b + beta · c`` for 2-D tensors; ``guard`` None: no check, no repair."""

    a: Tensor
    b: Tensor
    out: Tensor
    alpha: float
    beta: float
    c: Tensor | None
    guard: Guard | None


@dataclass(frozen=True)
class Side:
    """How operand ``"a"`` or ``"b"`` becomes planes.

    ``size``: of the operand, ``plane``: of one plane, ``outer``/``inner``: grids of the two levels.
    """

    which: str
    dtype: str
    recipe: Recipe
    size: tuple[int, int]
    plane: tuple[int, int]
    outer: tuple[int, int]
    inner: tuple[int, int]

    def in_place(self, sources: int | None = None) -> frozenset[int]:
        """Products whose operand is not written but read where it lies."""
        grid = (self.outer[0] * self.inner[0], self.outer[1] * self.inner[1])
        return read_in_place(self.recipe, self.which, self.size, grid, self.plane, sources=sources)

    def corner(self, block: int) -> tuple[int, int]:
        """First row and column of a block of the outer level."""
        i, j = divmod(block, self.outer[1])
        return i * self.inner[0] * self.plane[0], j * self.inner[1] * self.plane[1]

    def buffer(self, x: Operand) -> Tensor:
        """Memory for all planes of one step, laid out as the operand is."""
        count = len(self.recipe.inner.products) - len(self.in_place())
        return stack(count, *self.plane, PLANE[self.dtype], x)


def stack(count: int, rows: int, cols: int, dtype: torch.dtype, like: Operand) -> Tensor:
    """``count`` matrices in one piece of memory, each transposed where ``like`` is."""
    rows, cols = (cols, rows) if like.transposed else (rows, cols)
    memory = torch.empty((count, rows, cols), dtype=dtype, device=like.data.device)
    return memory.mT if like.transposed else memory


def sides(M: int, N: int, K: int, dtype: str, recipe: Recipe) -> tuple[Side, Side]:
    """Both operands of a product of these sizes."""
    h, w, d = plane_sizes(M, N, K, recipe)
    o, i = recipe.outer, recipe.inner
    return (
        Side("a", dtype, recipe, (M, K), (h, d), (o.m, o.k), (i.m, i.k)),
        Side("b", dtype, recipe, (K, N), (d, w), (o.k, o.n), (i.k, i.n)),
    )


def step_planes(
    side: Side,
    product: Product,
    x: Tensor,
    seen: Operand,
    buffer: Tensor,
    *,
    scale: Tensor | None = None,
    record: Tensor | None = None,
) -> Planes:
    """Planes of one outer product, in ``buffer`` or where the operand lies.

    Args:
        side: whose planes.
        product: of the outer level.
        x: the operand.
        seen: as the kernels see it.
        buffer: of ``Side.buffer``.
        scale: extremes of the operand if it is scaled.
        record: extremes to raise on the way.
    """
    terms: tuple[Term, ...] = getattr(product, side.which)
    program = side.recipe.inner
    skip = side.in_place(len(terms))
    sources = [(seen.block(*side.corner(block)), coef) for block, coef in terms]
    planes.combine(
        program, side.which, sources, buffer, side.dtype, skip=skip, scale=scale, record=record
    )
    if side.recipe.batched:
        return buffer
    row, col = side.corner(terms[0][0])
    height, width = side.plane
    found: list[Tensor] = []
    written = iter(buffer)
    for r, inner in enumerate(program.products):
        if r in skip:
            i, j = divmod(getattr(inner, side.which)[0][0], side.inner[1])
            top, left = row + i * height, col + j * width
            found.append(x[top : top + height, left : left + width])
        else:
            found.append(next(written))
    return tuple(found)


def run(call: Call, recipe: Recipe, packed: Packed | None = None) -> None:
    """Compute one 2-D product by a recipe; ``packed`` provides the planes of ``call.b``."""
    dtype = str(call.a.dtype).removeprefix("torch.")
    (M, K), N = call.a.shape, call.b.shape[1]
    side_a, side_b = sides(M, N, K, dtype, recipe)
    a, b, c = operand(call.a), operand(call.b), operand(call.out)
    prior = c if call.c is None else operand(call.c, transposed=c.transposed)
    beta = 0.0 if call.c is None else call.beta
    scaled = call.a.dtype.itemsize == 2

    # With one source per plane, and all blocks read, the guard's statistics come with the
    # combinations, unless the scale must be known before. A pass of its own reads A and B once
    # more: 0.29 of 16.4 ms at 8192³ in float64.
    on_the_way = recipe.outer.plain and recipe.batched and not scaled
    record_a = record_b = None
    if scaled or call.guard is not None:
        record_a = empty_record(a, dtype)
        record_b = packed.extremes if packed else empty_record(b, dtype)
        if not on_the_way:
            measure(a, record_a, dtype, along_rows=True)
        if not on_the_way and not packed:
            measure(b, record_b, dtype, along_rows=False)
    scales = None
    if scaled and record_a is not None and record_b is not None:
        bits = (growth_bits(recipe.inner, x) for x in "ab")
        scales = (record_a, next(bits), record_b, next(bits))
    options_a, options_b = (
        {"scale": record if scaled else None, "record": record if on_the_way else None}
        for record in (record_a, record_b)
    )

    h, w = side_a.plane[0], side_b.plane[1]
    buffer_a = side_a.buffer(a)
    buffer_b = None if packed else side_b.buffer(b)
    results = stack(len(recipe.inner.products), h, w, RESULT[dtype], c)
    block_c = Side("c", dtype, recipe, (M, N), (h, w), (recipe.outer.m, recipe.outer.n),
                   (recipe.inner.m, recipe.inner.n))  # fmt: skip
    for s, product in enumerate(recipe.outer.products):
        of_a = step_planes(side_a, product, call.a, a, buffer_a, **options_a)
        if packed:
            of_b = packed.planes[s]
        else:
            assert buffer_b is not None
            of_b = step_planes(side_b, product, call.b, b, buffer_b, **options_b)
        multiply(of_a, of_b, results)
        targets: list[tuple[Operand, float, Operand, float]] = []
        for (block, coef), first in zip(product.c, product.first, strict=True):
            corner = block_c.corner(block)
            to = c.block(*corner)
            before = prior.block(*corner) if first else to
            targets.append((to, call.alpha * coef, before, beta if first else 1.0))
        planes.finish(recipe.inner, results, targets, dtype, scales=scales)
    if call.guard is not None and record_a is not None and record_b is not None:
        records = (record_a, record_b)
        planes.repair(a, b, c, prior, call.alpha, beta, records, call.guard, dtype)


def empty_record(x: Operand, dtype: str) -> Tensor:
    """Memory for the guard's record of an operand; see ``guard.py``."""
    return torch.zeros(3, dtype=planes.extremes_dtype(dtype), device=x.data.device)


def measure(x: Operand, record: Tensor, dtype: str, *, along_rows: bool) -> None:
    """Raise a record to the extremes of an operand, in a pass of its own."""
    peak = dtype in ("float16", "bfloat16")
    planes.measure(x, record, dtype, along_rows=along_rows, peak=peak)


def packed_planes(b: Tensor, recipe: Recipe, side: Side) -> tuple[Sequence[Planes], int, Tensor]:
    """Planes of every outer product of a right operand, their bytes, and its extremes."""
    seen = operand(b)
    record = empty_record(seen, side.dtype)
    measure(seen, record, side.dtype, along_rows=False)
    scale = record if b.dtype.itemsize == 2 else None
    found, owned = [], 0
    for product in recipe.outer.products:
        buffer = side.buffer(seen)
        found.append(step_planes(side, product, b, seen, buffer, scale=scale))
        owned += buffer.numel() * buffer.element_size()
    return found, owned, record
