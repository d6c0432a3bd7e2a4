"""A's blocks, staged once for all products that read them, and the sums of them."""

from __future__ import annotations

from llvmlite import ir

from tiercel.targets.cpu.codegen import norms
from tiercel.targets.cpu.codegen.emit import Function
from tiercel.targets.cpu.codegen.fields import (
    Fields,
    Pair,
    Parts,
    Record,
    reset_stats,
    sub_block,
    sum_range,
    table,
)
from tiercel.targets.cpu.codegen.values import I64, PTR, Val
from tiercel.targets.cpu.params import LINE, TERM


def emit_stage(module: ir.Module, parts: Parts) -> Function:
    """Stage the blocks of A of one row block and kc of K; a plain block where ``plain_to`` says."""
    args = {"params": PTR, "private": PTR, "ic": I64, "pc": I64, "stats": PTR, "plain_to": PTR}
    f = Function(module, "stage_a", args)
    params, private, ic, pc, stats, plain_to = f.args()
    p = Fields(f, params)
    rows = (p.M - ic * p.mc).min(p.mc)
    height = sub_block(f, rows, p.m, parts.mr)
    depth = (p.K - pc * p.kc).min(p.kc)
    deep = sub_block(f, depth, p.k, parts.chunk)
    stage = private + p.at_stage_a
    spare = stage + p.planes * p.m * p.k * p.a_block_bytes
    pair = Pair(f, parts)
    with f.loop(0, p.planes * p.m * p.k) as block:
        plane, rest = block.i // (p.m * p.k), block.i % (p.m * p.k)
        row0, col0 = rest // p.k * height, rest % p.k * deep
        to = f.select(p.plain.eq(0), stage + block.i * p.a_block_bytes, plain_to)
        row, col = ic * p.mc + row0, pc * p.kc + col0
        with f.loop(0, p.a_terms) as t:
            term = Record(f, p.address("a"), t.i, TERM)
            into = f.select(t.i.eq(0), to, spare)
            tall = (term.rows - row).min((rows - row0).min(height)).max(0)
            long = (term.cols - col).min((depth - col0).min(deep)).max(0)
            f.call(
                parts.load_tiles, into,
                term.pointer("at") + plane * p.a_plane + row * p.a_rs + col * p.a_cs,
                p.a_rs, p.a_cs, tall, long, height, deep,
            )  # fmt: skip
            with f.when(p.guard.ne(0) & (long > 0)):
                end = norms.is_end(f, long, f.ceil_div(p.K.min(p.kc), p.k))
                f.call(parts.rows, into, deep, tall, stats, end)
            with f.when(t.i > 0):
                pair.fill(to, spare, term.number("coef"))
                nbytes = height * deep * parts.size
                f.call(parts.combine, to, nbytes, 2, pair.pointers, pair.coefs, 0)
    f.ret()
    return f


def sum_a(f: Function, p: Fields, parts: Parts, private: Val, r: Val, to: Val, count: Val) -> None:
    """Pack product r's sum of the staged blocks of A, ``count`` elements."""
    at, terms = sum_range(f, p, "a", r)
    f.call(
        parts.combine, to, count * parts.size, terms,
        table(f, p, private, "a") + at * 8, p.address("a_coef") + at * parts.size, 0,
    )  # fmt: skip


def emit(module: ir.Module, parts: Parts, stage_a: Function) -> Function:
    """One task of packing A for all threads: every sum of one row block, all of K."""
    f = Function(module, "pack_a", {"params": PTR, "private": PTR, "ic": I64})
    params, private, ic = f.args()
    p = Fields(f, params)
    height = sub_block(f, (p.M - ic * p.mc).min(p.mc), p.m, parts.mr)
    packed = p.address("packed_a") + ic * p.packed_a_step
    stats = packed + (p.packed_a_step - LINE)
    reset_stats(f, stats, parts)
    with f.loop(0, f.ceil_div(p.K, p.kc)) as pc:
        deep = sub_block(f, (p.K - pc.i * p.kc).min(p.kc), p.k, parts.chunk)
        to = packed + pc.i * p.products * p.a_block_bytes
        f.call(stage_a, params, private, ic, pc.i, stats, to)
        with f.when(p.plain.eq(0)), f.loop(0, p.products) as r:
            sum_a(f, p, parts, private, r.i, to + r.i * p.a_block_bytes, height * deep)
    f.ret()
    return f
