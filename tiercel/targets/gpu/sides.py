"""How an operand becomes planes: where they lie, which are written, which read in place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from tiercel.lower.program import Product, Term
from tiercel.targets.gpu import planes
from tiercel.targets.gpu.launch import Work, stand_in
from tiercel.targets.gpu.operand import PLANE, Operand
from tiercel.targets.gpu.recipe import GAP, Recipe, plane_sizes, read_in_place

Planes = Tensor | tuple[Tensor, ...]


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

    @property
    def count(self) -> int:
        """Planes of one step."""
        return len(self.recipe.inner.products) - len(self.in_place())

    @property
    def elements(self) -> int:
        """Of all planes of one step, gaps included."""
        return self.count * apart(*self.plane, PLANE[self.dtype])

    def buffer(self, x: Operand, slot: int, start: int) -> Tensor:
        """Stand-in for all planes of one step, laid out as the operand is."""
        return stack(self.count, *self.plane, PLANE[self.dtype], x, slot, start)


def stack(
    count: int, rows: int, cols: int, dtype: torch.dtype, like: Operand, slot: int, start: int
) -> Tensor:
    """``count`` matrices in one piece of memory, each transposed where ``like`` is."""
    rows, cols = (cols, rows) if like.transposed else (rows, cols)
    strides = apart(rows, cols, dtype), cols, 1
    made = stand_in(slot, (count, rows, cols), strides, dtype, start)
    return made.mT if like.transposed else made


def apart(rows: int, cols: int, dtype: torch.dtype) -> int:
    """Elements from one plane to the next."""
    return rows * cols + GAP // dtype.itemsize


def sides(M: int, N: int, K: int, dtype: str, recipe: Recipe) -> tuple[Side, Side]:
    """Both operands of a product of these sizes."""
    h, w, d = plane_sizes(M, N, K, recipe)
    o, i = recipe.outer, recipe.inner
    return (
        Side("a", dtype, recipe, (M, K), (h, d), (o.m, o.k), (i.m, i.k)),
        Side("b", dtype, recipe, (K, N), (d, w), (o.k, o.n), (i.k, i.n)),
    )


def combined(
    side: Side,
    product: Product,
    seen: Operand,
    buffer: Tensor,
    *,
    scale: Tensor | None = None,
    record: Tensor | None = None,
) -> Iterator[Work]:
    """Write into ``buffer`` the planes of one outer product that have to be written.

    Args:
        side: whose planes.
        product: of the outer level.
        seen: the operand.
        buffer: of ``Side.buffer``.
        scale: extremes of the operand if it is scaled.
        record: extremes to raise on the way.
    """
    terms: tuple[Term, ...] = getattr(product, side.which)
    sources = [(seen.block(*side.corner(block)), coef) for block, coef in terms]
    yield from planes.combine(
        side.recipe.inner, side.which, sources, buffer, side.dtype,
        skip=side.in_place(len(terms)), scale=scale, record=record,
    )  # fmt: skip


def found(side: Side, product: Product, x: Tensor, buffer: Tensor) -> Planes:
    """All planes of one outer product, in ``buffer`` or where the operand ``x`` lies."""
    if side.recipe.batched:
        return buffer
    terms: tuple[Term, ...] = getattr(product, side.which)
    skip = side.in_place(len(terms))
    row, col = side.corner(terms[0][0])
    height, width = side.plane
    every: list[Tensor] = []
    written = iter(buffer)
    for r, inner in enumerate(side.recipe.inner.products):
        if r in skip:
            i, j = divmod(getattr(inner, side.which)[0][0], side.inner[1])
            top, left = row + i * height, col + j * width
            every.append(x[top : top + height, left : left + width])
        else:
            every.append(next(written))
    return tuple(every)
