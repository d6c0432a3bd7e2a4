"""One 2-D product as work: the steps of the outer level, each combine, multiply, finish."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from tiercel.lower.blocking import round_up
from tiercel.lower.program import Term
from tiercel.lower.recipe import Guard
from tiercel.targets.gpu import planes
from tiercel.targets.gpu.heard import Judge, Report
from tiercel.targets.gpu.launch import Memory, Work, current_stream, stand_in
from tiercel.targets.gpu.layout import Layout, as_stored
from tiercel.targets.gpu.multiply import Multiply
from tiercel.targets.gpu.operand import NAMES, PLANE, RESULT, Operand, operand
from tiercel.targets.gpu.packed import Packed
from tiercel.targets.gpu.recipe import Recipe
from tiercel.targets.gpu.scale import growth_bits
from tiercel.targets.gpu.sides import Side, apart, combined, found, sides, stack

#: Slots of a call's tensors. ``EXTREMES`` and ``PLANES``: of a packed operand.
A, B, OUT, C, WORKSPACE, RECORDS, EXTREMES, PLANES = range(8)

#: Bytes to whose multiples buffers in the workspace start.
LINE = 256

#: Elements of a guard's record, with one to keep the second of two at an even address.
RECORD = 4


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


@lru_cache(maxsize=512)
def prepare(call: Call) -> Prepared:
    """The work of one 2-D product."""
    dtype = NAMES[call.a.dtype]
    side_a, side_b = sides(call.a.shape[0], call.b.shape[1], call.a.shape[1], dtype, call.recipe)
    result = RESULT[dtype]
    line = LINE // PLANE[dtype].itemsize
    start_b = round_up(side_a.elements, line)
    start_c = start_b + (0 if call.packed else round_up(side_b.elements, line))
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


def _work(
    call: Call, dtype: str, side_a: Side, side_b: Side, starts: tuple[int, int]
) -> Iterator[Work]:
    recipe = call.recipe
    right = call.b.stand_in(B)
    a, b, c = operand(call.a.stand_in(A)), operand(right), operand(call.out.stand_in(OUT))
    prior = c if call.c is None else operand(call.c.stand_in(C), transposed=c.transposed)
    beta = 0.0 if call.c is None else call.beta
    scaled = call.a.dtype.itemsize == 2

    record_a, record_b, seen_a, seen_b = _records(call, dtype, a, b)
    if record_a is not None and not seen_a:
        yield from measure(a, record_a, dtype, along_rows=True)
    if record_b is not None and not seen_b and not call.packed:
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


def _records(
    call: Call, dtype: str, a: Operand, b: Operand
) -> tuple[Tensor | None, Tensor | None, frozenset[int], frozenset[int]]:
    """The guard's records of A and B, None without a guard or scale, and who fills them in.

    Where all blocks are read, the guard's statistics come with the combinations of some products of
    the outer level, unless the scale must be known before. A pass of its own reads A and B once
    more: 0.29 of 16.4 ms at 8192³ in float64.
    """
    nobody, scaled = frozenset[int](), call.a.dtype.itemsize == 2
    if not scaled and call.guard is None:
        return None, None, nobody, nobody
    record_a = record(RECORDS, dtype)
    record_b = record(EXTREMES, dtype) if call.packed else record(RECORDS, dtype, RECORD)
    if scaled or not call.recipe.batched:
        return record_a, record_b, nobody, nobody
    seen = on_the_way(call.recipe, "a", a), on_the_way(call.recipe, "b", b)
    return record_a, record_b, *seen


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
