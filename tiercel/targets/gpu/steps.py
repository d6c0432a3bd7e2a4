"""One 2-D product as work: the steps of the outer level, each combine, multiply, finish."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from tiercel.lower.program import Product, Term
from tiercel.lower.recipe import Guard
from tiercel.targets.gpu import planes
from tiercel.targets.gpu.heard import Judge, Report
from tiercel.targets.gpu.launch import ALIGNMENT, Memory, current_stream, stand_in
from tiercel.targets.gpu.multiply import Multiply
from tiercel.targets.gpu.operand import NAMES, PLANE, RESULT, Operand, operand
from tiercel.targets.gpu.packed import Packed
from tiercel.targets.gpu.recipe import GAP, Recipe, plane_sizes, read_in_place
from tiercel.targets.gpu.scale import growth_bits

#: Slots of a call's tensors. ``EXTREMES`` and ``PLANES``: of a packed operand.
A, B, OUT, C, WORKSPACE, RECORDS, EXTREMES, PLANES = range(8)

#: Bytes to whose multiples buffers in the workspace start.
LINE = 256

#: Elements of a guard's record, with one to keep the second of two at an even address.
RECORD = 4

Work = Callable[[Memory, int], None]
Planes = Tensor | tuple[Tensor, ...]


class Layout(NamedTuple):
    """What prepared work depends on of a 2-D tensor; ``phase``: its address, modulo 16."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: int
    conjugated: bool
    phase: int

    @classmethod
    def of(cls, x: Tensor) -> Layout:
        phase = x.data_ptr() % ALIGNMENT
        return cls(x.shape, x.stride(), x.dtype, x.get_device(), x.is_conj(), phase)

    def stand_in(self, slot: int) -> Tensor:
        """A tensor like it, without memory."""
        made = stand_in(slot, self.shape, self.strides, self.dtype)
        return made.conj() if self.conjugated else made


class Call(NamedTuple):
    """``out = alpha · a · b + beta · c``; ``guard`` None: no check, no repair.

    ``packed``: planes of b exist already. ``multiprocessors``: of the tensors' device.
    """

    a: Layout
    b: Layout
    out: Layout
    c: Layout | None
    alpha: float
    beta: float
    guard: Guard | None
    recipe: Recipe
    packed: bool
    multiprocessors: int


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


@dataclass(frozen=True)
class Prepared:
    """The work of a call, and the memory that it takes."""

    work: tuple[Work, ...]
    workspace: int
    plane: torch.dtype
    record: torch.dtype | None
    guard: Guard | None = None

    def run(
        self, a: Tensor, b: Tensor, out: Tensor, c: Tensor | None, packed: Packed | None,
        report: Report | None = None,
    ) -> None:  # fmt: skip
        """On tensors of the layouts that this was prepared for, on the current stream."""
        records = None
        if self.record is not None:
            records = torch.zeros(2 * RECORD, dtype=self.record, device=a.device)
        tensors = [
            as_stored(a), as_stored(b), out, c,
            torch.empty(self.workspace, dtype=self.plane, device=a.device), records,
            None if packed is None else packed.extremes, None if packed is None else packed.planes,
        ]  # fmt: skip
        memory, stream = Memory(tensors), current_stream(a)
        for work in self.work:
            work(memory, stream)
        if report is not None and records is not None and self.guard is not None:
            parts = () if packed is None else (packed.extremes,)
            report(Judge(self.guard, records.dtype.itemsize), records, *parts)


def as_stored(x: Tensor) -> Tensor:
    """``x`` without the conjugation that is still to be done."""
    return x.conj() if x.is_conj() else x


@lru_cache(maxsize=512)
def prepare(call: Call) -> Prepared:
    """The work of one 2-D product."""
    dtype = NAMES[call.a.dtype]
    side_a, side_b = sides(call.a.shape[0], call.b.shape[1], call.a.shape[1], dtype, call.recipe)
    result = RESULT[dtype]
    line = LINE // PLANE[dtype].itemsize
    start_b = _up(side_a.elements, line)
    start_c = start_b + (0 if call.packed else _up(side_b.elements, line))
    count, (h, w) = len(call.recipe.inner.products), (side_a.plane[0], side_b.plane[1])
    total = start_c + count * apart(h, w, result) * result.itemsize // PLANE[dtype].itemsize
    needs_record = call.a.dtype.itemsize == 2 or call.guard is not None
    return Prepared(
        tuple(_work(call, dtype, side_a, side_b, (start_b, start_c))),
        total,
        PLANE[dtype],
        planes.extremes_dtype(dtype) if needs_record else None,
        call.guard,
    )


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _work(
    call: Call, dtype: str, side_a: Side, side_b: Side, starts: tuple[int, int]
) -> Iterator[Work]:
    recipe = call.recipe
    right = call.b.stand_in(B)
    a, b, c = operand(call.a.stand_in(A)), operand(right), operand(call.out.stand_in(OUT))
    prior = c if call.c is None else operand(call.c.stand_in(C), transposed=c.transposed)
    beta = 0.0 if call.c is None else call.beta
    scaled = call.a.dtype.itemsize == 2

    # Where all blocks are read, the guard's statistics come with the combinations, unless the scale
    # must be known before. A pass of its own reads A and B once more: 0.29 of 16.4 ms at 8192³ in
    # float64.
    record_a = record_b = None
    seen_a = seen_b = frozenset[int]()
    if scaled or call.guard is not None:
        record_a = record(RECORDS, dtype)
        record_b = record(EXTREMES, dtype) if call.packed else record(RECORDS, dtype, RECORD)
        if recipe.batched and not scaled:
            seen_a, seen_b = on_the_way(recipe, "a", a), on_the_way(recipe, "b", b)
        if not seen_a:
            yield from measure(a, record_a, dtype, along_rows=True)
        if not seen_b and not call.packed:
            yield from measure(b, record_b, dtype, along_rows=False)
    scales = None
    if scaled and record_a is not None and record_b is not None:
        bits = (growth_bits(recipe.inner, x) for x in "ab")
        scales = (record_a, next(bits), record_b, next(bits))
    scale_a, scale_b = (record_a, record_b) if scaled else (None, None)

    (start_b, start_c), result = starts, RESULT[dtype]
    h, w = side_a.plane[0], side_b.plane[1]
    buffer_a = side_a.buffer(a, WORKSPACE, 0)
    buffer_b = None if call.packed else side_b.buffer(b, WORKSPACE, start_b)
    start = start_c * PLANE[dtype].itemsize // result.itemsize
    results = stack(len(recipe.inner.products), h, w, result, c, WORKSPACE, start)
    size = call.a.shape[0], call.b.shape[1]
    block_c = Side("c", dtype, recipe, size, (h, w), (recipe.outer.m, recipe.outer.n),
                   (recipe.inner.m, recipe.inner.n))  # fmt: skip
    for s, product in enumerate(recipe.outer.products):
        taken = record_a if s in seen_a else None
        yield from combined(side_a, product, a, buffer_a, scale=scale_a, record=taken)
        if buffer_b is None:
            of_b = side_b.buffer(b, PLANES, s * side_b.elements)
        else:
            of_b = buffer_b
            taken = record_b if s in seen_b else None
            yield from combined(side_b, product, b, buffer_b, scale=scale_b, record=taken)
        yield Multiply(
            found(side_a, product, call.a.stand_in(A), buffer_a),
            found(side_b, product, right, of_b),
            results,
        )
        targets: list[tuple[Operand, float, Operand, float]] = []
        for (block, coef), first in zip(product.c, product.first, strict=True):
            corner = block_c.corner(block)
            to = c.block(*corner)
            before = prior.block(*corner) if first else to
            targets.append((to, call.alpha * coef, before, beta if first else 1.0))
        yield planes.finish(recipe.inner, results, targets, dtype, scales=scales)
    if call.guard is not None and record_a is not None and record_b is not None:
        records = (record_a, record_b)
        yield planes.repair(
            a, b, c, prior, call.alpha, beta, records, call.guard, dtype, call.multiprocessors
        )


def on_the_way(recipe: Recipe, which: str, x: Operand) -> frozenset[int]:
    """Products of the outer level whose combinations see all of an operand, for the guard.

    Those with the most sources, where they suffice: one kernel less to compile. None where there
    are several sources and the guard's segments do not run along rows of the kernel's view.
    """
    if recipe.outer.plain:
        return frozenset({0})
    if (which == "a") == x.transposed:
        return frozenset()
    terms: list[tuple[Term, ...]] = [getattr(p, which) for p in recipe.outer.products]
    most = max(map(len, terms))
    chosen = frozenset(s for s, sources in enumerate(terms) if len(sources) == most)
    blocks = {block for s in chosen for block, _ in terms[s]}
    complete = blocks == {block for sources in terms for block, _ in sources}
    return chosen if complete else frozenset(range(len(terms)))


def record(slot: int, dtype: str, start: int = 0) -> Tensor:
    """Stand-in for the guard's record of an operand; see ``guard.py``."""
    return stand_in(slot, (3,), (1,), planes.extremes_dtype(dtype), start)


def measure(x: Operand, record: Tensor, dtype: str, *, along_rows: bool) -> Iterator[Work]:
    """Raise a record to the extremes of an operand, in a pass of its own."""
    peak = dtype in ("float16", "bfloat16")
    yield from planes.measure(x, record, dtype, along_rows=along_rows, peak=peak)


def packed_planes(b: Tensor, side: Side) -> tuple[Tensor, Tensor]:
    """Planes of every outer product of a right operand, one after the other, and its extremes."""
    extremes = torch.zeros(3, dtype=planes.extremes_dtype(side.dtype), device=b.device)
    steps = side.recipe.outer.products
    memory = torch.empty(len(steps) * side.elements, dtype=PLANE[side.dtype], device=b.device)
    everything = Memory([None, as_stored(b), *[None] * 4, extremes, memory])
    stream = current_stream(b)
    for work in _packing(Layout.of(b), side):
        work(everything, stream)
    return memory, extremes


def _packing(b: Layout, side: Side) -> Iterator[Work]:
    seen, extremes = operand(b.stand_in(B)), record(EXTREMES, side.dtype)
    yield from measure(seen, extremes, side.dtype, along_rows=False)
    scale = extremes if b.dtype.itemsize == 2 else None
    for s, product in enumerate(side.recipe.outer.products):
        buffer = side.buffer(seen, PLANES, s * side.elements)
        yield from combined(side, product, seen, buffer, scale=scale)
