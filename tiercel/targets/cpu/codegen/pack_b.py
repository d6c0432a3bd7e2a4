"""B's blocks, summed for every product and packed in panels."""

from __future__ import annotations

from typing import NamedTuple

from llvmlite import ir

from tiercel.targets.cpu.codegen import norms
from tiercel.targets.cpu.codegen.emit import Function
from tiercel.targets.cpu.codegen.fields import (
    Fields,
    Pair,
    Parts,
    Record,
    packed_panel,
    sub_block,
    sum_range,
    table,
)
from tiercel.targets.cpu.codegen.values import I64, PTR, Val
from tiercel.targets.cpu.params import LINE, TERM


class _Task(NamedTuple):
    """``count`` panels from ``panel0`` on of every block, kc of K deep; sizes in elements.

    ``cols``: of B in this step of jc; ``width``, ``height``: of one block; ``depth``: rows of B in
    this step of pc. ``at_row``, ``at_col``: where both steps begin.
    """

    f: Function
    p: Fields
    parts: Parts
    private: Val
    thread: Val
    jc: Val
    pc: Val
    panel0: Val
    cols: Val
    width: Val
    count: Val
    depth: Val
    height: Val
    at_row: Val
    at_col: Val


class _Buffers(NamedTuple):
    """Staged blocks, the norms of their columns (``sums``), and a block that is added to another.

    ``blocks``: how many. ``sums_bytes``: norms of one block.
    """

    stage: Val
    sums: Val
    spare: Val
    blocks: Val
    sums_bytes: Val


def emit(module: ir.Module, parts: Parts) -> Function:
    """One task of packing: ``pack_panels`` panels of every summed block of B, kc of K deep.

    The source blocks are staged a slice of K at a time, small enough to stay in cache while all
    the sums are formed from it: each element of B is read from memory once.
    """
    args = {"params": PTR, "private": PTR} | dict.fromkeys(["thread", "jc", "pc", "group"], I64)
    f = Function(module, "pack_b", args)
    params, private, thread, jc, pc, group = f.args()
    p = Fields(f, params)
    panel0 = group * p.pack_panels
    cols = (p.N - jc * p.nc).min(p.nc)
    width = sub_block(f, cols, p.n, parts.nr)
    count = (width // parts.nr - panel0).min(p.pack_panels)
    depth = (p.K - pc * p.kc).min(p.kc)
    height = sub_block(f, depth, p.k, parts.chunk)
    task = _Task(
        f, p, parts, private, thread, jc, pc, panel0, cols, width, count, depth, height,
        at_row=pc * p.kc, at_col=jc * p.nc,
    )  # fmt: skip
    with f.either(p.plain.ne(0)) as (plain, summed):
        with plain:
            _pack_plain(task)
        with summed:
            _pack_sums(task)
    f.ret()
    return f


def _pack_plain(task: _Task) -> None:
    """One block, one product: straight into the packed buffer."""
    f, p, nr, size = task.f, task.p, task.parts.nr, task.parts.size
    term = Record(f, p.address("b"), 0, TERM)
    at = term.pointer("at") + task.at_row * p.b_rs + (task.at_col + task.panel0 * nr) * p.b_cs
    f.call(
        task.parts.load_panels,
        packed_panel(p, task.parts, task.jc, task.pc, f.i64(0), task.panel0), p.k_pad * (nr * size),
        at, p.b_rs, p.b_cs, task.depth, (task.cols - task.panel0 * nr).min(task.count * nr),
        task.height, task.count,
    )  # fmt: skip


def _pack_sums(task: _Task) -> None:
    """Every product's sum of blocks, from slices of K that are staged once for all of them."""
    f, p, nr, size = task.f, task.p, task.parts.nr, task.parts.size
    stage = task.private + p.at_stage_b
    sums = stage + p.planes * p.k * p.n * p.b_block_bytes
    blocks = p.planes * p.k * p.n
    sums_bytes = p.pack_panels * (nr * size)
    spare = sums + p.b_terms * blocks * sums_bytes
    buffers = _Buffers(stage, sums, spare, blocks, sums_bytes)
    pair = Pair(f, task.parts)
    with f.loop(0, p.b_terms * blocks * p.pack_panels * nr) as i:
        f.store(f.const(task.parts.element, 0.0), sums + i.i * size, size)
    with f.loop(0, task.height, p.slice) as at:
        rows_pad = (task.height - at.i).min(p.slice)
        panel_bytes = rows_pad * (nr * size)
        with f.loop(0, blocks) as block:
            _stage(task, buffers, pair, block.i, at.i, rows_pad, panel_bytes)
        sources, coefs = table(f, p, task.private, "b"), p.address("b_coef")
        with f.loop(0, p.products) as r:
            first, terms = sum_range(f, p, "b", r.i)
            with f.loop(0, task.count) as g:
                to = packed_panel(p, task.parts, task.jc, task.pc, r.i, task.panel0 + g.i)
                f.call(
                    task.parts.stream, to + at.i * (nr * size), panel_bytes, terms,
                    sources + first * 8, coefs + first * size, g.i * panel_bytes,
                )  # fmt: skip
    _merge_norms(task, buffers)


def _stage(
    task: _Task, buffers: _Buffers, pair: Pair, block: Val, at: Val, rows_pad: Val,
    panel_bytes: Val,
) -> None:  # fmt: skip
    """One block's slice of K from row ``at`` on: the sum of its views, and the norms of each."""
    f, p, nr, size = task.f, task.p, task.parts.nr, task.parts.size
    plane, rest = block // (p.k * p.n), block % (p.k * p.n)
    bk, bn = rest // p.n, rest % p.n
    row0, col0 = bk * task.height + at, bn * task.width + task.panel0 * nr
    to = buffers.stage + block * p.b_block_bytes
    row, col = task.at_row + row0, task.at_col + col0
    with f.loop(0, p.b_terms) as t:
        term = Record(f, p.address("b"), t.i, TERM)
        into = f.select(t.i.eq(0), to, buffers.spare)
        inside = (task.depth - row0).min(task.height - at).min(rows_pad)
        rows = (term.rows - row).min(inside).max(0)
        inside = (task.cols - col0).min((task.width - task.panel0 * nr).min(task.count * nr))
        wide = (term.cols - col).min(inside).max(0)
        f.call(
            task.parts.load_panels, into, panel_bytes,
            term.pointer("at") + plane * p.b_plane + row * p.b_rs + col * p.b_cs,
            p.b_rs, p.b_cs, rows, wide, rows_pad, task.count,
        )  # fmt: skip
        with f.when(p.guard.ne(0)), f.loop(0, task.count) as g:
            panel = into + g.i * panel_bytes
            sums = buffers.sums + (t.i * buffers.blocks + block) * buffers.sums_bytes
            f.call(task.parts.columns, panel, rows_pad, sums + g.i * (nr * size))
        with f.when(t.i > 0):
            pair.fill(to, buffers.spare, term.number("coef"))
            nbytes = task.count * panel_bytes
            f.call(task.parts.combine, to, nbytes, 2, pair.pointers, pair.coefs, 0)


def _merge_norms(task: _Task, buffers: _Buffers) -> None:
    """The norms of all columns into the thread's statistics.

    Each view by itself: the sum of a large and a small column looks like a large one. Only its
    columns inside B: padding is no column of norm 0.
    """
    f, p, nr = task.f, task.p, task.parts.nr
    with f.when(p.guard.ne(0)), f.loop(0, p.b_terms) as t, f.loop(0, buffers.blocks) as block:
        bn, bk = block.i % p.n, block.i // p.n % p.k
        term = Record(f, p.address("b"), t.i, TERM)
        col0, row0 = bn * task.width + task.panel0 * nr, bk * task.height
        inside = (term.cols - (task.at_col + col0)).min(task.cols - col0)
        wide = inside.min(task.count * nr).max(0)
        tall = (task.depth - row0).min(task.height).min(term.rows - (task.at_row + row0))
        with f.when(tall > 0):
            f.call(
                task.parts.merge,
                buffers.sums + (t.i * buffers.blocks + block.i) * buffers.sums_bytes, wide,
                p.address("stats_b") + task.thread * LINE,
                norms.is_end(f, tall, f.ceil_div(p.K.min(p.kc), p.k)),
            )  # fmt: skip
