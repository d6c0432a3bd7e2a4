"""Scale statistics of staged blocks: the data behind the run-time guard.

A Strassen-like scheme adds blocks before it multiplies them, so its rounding error follows the
largest row (column) that takes part in a sum, not the row it lands in. These functions record, over
every row of A blocks and column of B blocks, the smallest and largest 1-norm and their total (which
is NaN or Inf as soon as one element is). They read data that is in cache already.

Where K is cut into blocks, its end may be a few columns only. Their norms are small because they
are short, not because of their scale: `is_end` keeps them from being the smallest. Every row and
column has a whole block as well, whose norm counts.
"""

from __future__ import annotations

from llvmlite import ir

from tiercel.targets.cpu.codegen.emit import Function
from tiercel.targets.cpu.codegen.microkernel import chunk
from tiercel.targets.cpu.codegen.values import I64, PTR, Val, vec

LEAST, MOST, TOTAL = range(3)  # fields of a statistics record, one element each


def is_end(f: Function, length: Val, whole: Val) -> Val:
    """Whether a block is under three quarters of a whole one, 1 or 0.

    Normal data of 144 columns and of 108 have norms within 1 : 2.4, which the guard's limit of 4
    for each operand allows; of 144 and 33 they have not.
    """
    return f.cast(length * 4 < whole * 3, I64, "zext")


def _merge(f: Function, stats: Val, size: int, element: ir.Type, norm: Val, end: Val) -> None:
    least, most, total = (f.load(stats + i * size, element, size) for i in range(3))
    f.store(f.select((norm < least) & end.eq(0), norm, least), stats + LEAST * size, size)
    f.store(f.select(norm > most, norm, most), stats + MOST * size, size)
    f.store(total + norm, stats + TOTAL * size, size)


def emit_rows(module: ir.Module, element: ir.Type, size: int, lanes: int, mr: int) -> Function:
    """``norms_rows(block, k, rows, stats, end)``: the first ``rows`` rows of staged row tiles."""
    args = {"block": PTR, "k": I64, "rows": I64, "stats": PTR, "end": I64}
    f = Function(module, "norms_rows", args)
    block, k, rows, stats, end = f.args()
    vtype, step, run = vec(element, lanes), lanes * size, chunk(lanes)
    with f.loop(0, rows) as i:
        row = block + i.i // mr * (k * (mr * size)) + i.i % mr * (run * size)
        with f.loop(0, k, run, carry=[f.const(vtype, 0.0)]) as j:
            total = j.carried[0]
            for v in range(0, run, lanes):
                x = f.load(row + j.i * (mr * size) + v * size, vtype, step)
                total = total + f.intrinsic("fabs", x)
            j.next(total)
        _merge(f, stats, size, element, f.reduce_add(j.results[0]), end)
    f.ret()
    return f


def emit_columns(module: ir.Module, element: ir.Type, size: int, lanes: int, nr: int) -> Function:
    """``add_columns(panel, rows, sums)``: sums[j] += Σᵢ |panel[i, j]| over the rows of a panel."""
    f = Function(module, "add_columns", {"panel": PTR, "rows": I64, "sums": PTR})
    panel, rows, sums = f.args()
    vtype, step, vectors = vec(element, lanes), lanes * size, nr // lanes
    start = [f.load(sums + v * step, vtype, step) for v in range(vectors)]
    with f.loop(0, rows, carry=start) as i:
        at = panel + i.i * (nr * size)
        i.next(
            *(
                i.carried[v] + f.intrinsic("fabs", f.load(at + v * step, vtype, step))
                for v in range(vectors)
            )
        )
    for v in range(vectors):
        f.store(i.results[v], sums + v * step, step)
    f.ret()
    return f


def emit_merge(module: ir.Module, element: ir.Type, size: int) -> Function:
    """``merge_norms(sums, count, stats, end)``: fold column sums into a statistics record."""
    args = {"sums": PTR, "count": I64, "stats": PTR, "end": I64}
    f = Function(module, "merge_norms", args)
    sums, count, stats, end = f.args()
    with f.loop(0, count) as j:
        _merge(f, stats, size, element, f.load(sums + j.i * size, element, size), end)
    f.ret()
    return f
