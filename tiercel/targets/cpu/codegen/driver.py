"""The loops around the micro-kernel, run by every thread of a product.

    pack all sums of A                                     where threads share them, else below
    for jc: columns of C, nc at a time
        pack the summed blocks of B, all of K              tasks shared by the threads, barrier;
                                                           not where few rows read them once
        for (ic, js): row block × part of the columns      tasks shared by the threads; the last
                                                           are cut smaller where A is shared
            for pc: kc of K at a time
                stage the blocks of A
                of few rows, for some panels of B at a time: pack them, macro-kernel
                else, for each product r of the program
                    pack the summed block of A             (not for a plain block)
                    macro-kernel: its tiles into scratch   overwrite or accumulate, 1…n blocks
            store: scratch → epilogue → C                  each element of C written once
        barrier

Which thread runs a task changes nothing in what the task computes, so the result does not depend on
timing or on the number of threads.
"""

from __future__ import annotations

from llvmlite import ir

from tiercel.targets.cpu.codegen import ahead, guard, in_turn, pack_a, pack_b, write_back
from tiercel.targets.cpu.codegen.emit import Function
from tiercel.targets.cpu.codegen.fields import (
    Fields,
    Parts,
    packed_panel,
    reset_stats,
    sub_block,
    sum_range,
    table,
)
from tiercel.targets.cpu.codegen.pack_a import sum_a
from tiercel.targets.cpu.codegen.values import I64, PTR, Val
from tiercel.targets.cpu.params import LINE
from tiercel.targets.cpu.pool.sync import barrier

#: Where threads share packed A, each one's last task is cut into so many, so that none waits long
#: for the others. 4096³ on 16 threads, six rounds in turns: float64 1.06, float32 1.03.
LATE = 4


def emit(module: ir.Module, parts: Parts) -> Function:
    """Emit the exported ``gemm(params, thread) -> int``; 0: done, 1: the guard gave up."""
    tables = _emit_tables(module, parts)
    pack = pack_b.emit(module, parts)
    safe = guard.emit(module, parts)
    store = write_back.emit(module, parts)
    stage_a = pack_a.emit_stage(module, parts)
    share = pack_a.emit(module, parts, stage_a)
    turn = in_turn.emit(module, parts)
    task = _emit_task(module, parts, safe, stage_a, turn, store)
    wait = barrier(module)

    f = Function(module, "gemm", {"params": PTR, "thread": I64}, I64, export=True)
    params, thread = f.args()
    p = Fields(f, params)
    private = p.address("private") + thread * p.private_bytes
    sync, tickets = p.address("sync"), p.address("tickets")
    stats = p.address("stats_b") + thread * LINE
    f.call(tables, params, private)
    depth, col_steps = f.ceil_div(p.K, p.kc), f.ceil_div(p.N, p.nc)
    share_a = p.packed_a.ne(0)
    with f.when(share_a):
        _shared(
            f, tickets + col_steps * (2 * LINE), f.ceil_div(p.M, p.mc),
            lambda t: f.call(share, params, private, t),
        )  # fmt: skip
    with f.loop(0, col_steps) as jc:
        cols = (p.N - jc.i * p.nc).min(p.nc)
        panels = sub_block(f, cols, p.n, parts.nr) // parts.nr
        groups = f.ceil_div(panels, p.pack_panels)
        packs = p.b_ready.eq(0) & p.in_turn.eq(0)
        with f.when(packs):
            with f.when(jc.i.eq(0) | (p.M > 0)):  # M = 0: only pack, scales over all of B
                reset_stats(f, stats, parts)
            _shared(
                f, tickets + jc.i * (2 * LINE), depth * groups,
                lambda t: f.call(pack, params, private, thread, jc.i, t // groups, t % groups),
            )  # fmt: skip
        with f.when(packs | share_a & jc.i.eq(0)):
            f.call(wait, sync, p.threads)
        parts_n = f.ceil_div(panels, p.task_panels)
        tasks = f.ceil_div(p.M, p.mc) * parts_n
        late = f.select(share_a, tasks.min(p.threads), 0)
        whole, piece = tasks - late, f.ceil_div(p.task_panels, LATE)

        def run(t: Val, jc: Val = jc.i, panels: Val = panels) -> None:
            over = (t - whole).max(0)
            at, within = t.min(whole) + over // LATE, over % LATE * piece
            panel0 = at % parts_n * p.task_panels + within
            most = f.select(t < whole, p.task_panels, piece.min(p.task_panels - within))
            count = (panels - panel0).min(most)
            with f.when(count > 0):
                f.call(task, params, private, jc, at // parts_n, panel0, count)

        _shared(f, tickets + jc.i * (2 * LINE) + LINE, whole + late * LATE, run)
        f.call(wait, sync, p.threads)
    f.ret(f.load_atomic(sync + LINE))
    return f


def _shared(f: Function, ticket: Val, count: Val, body) -> None:
    """Run tasks 0 … count-1, drawn from a counter that all threads share, unless given up."""
    with f.forever() as done:
        t = f.fetch_add(ticket, 1)
        f.leave(done, t >= count)
        body(t)


def _emit_tables(module: ir.Module, parts: Parts) -> Function:
    """Turn the program's block numbers into addresses in this thread's buffers, once a call."""
    f = Function(module, "tables", {"params": PTR, "private": PTR})
    params, private = f.args()
    p = Fields(f, params)
    out = private + p.at_tables
    for name, base, stride in (
        ("a", p.at_stage_a, p.a_block_bytes),
        ("b", p.at_stage_b, p.b_block_bytes),
        ("c", p.at_scratch, p.c_block_bytes),
    ):
        count = f.load(p.address(f"{name}_start") + p.products * 8, I64, 8)
        with f.loop(0, count) as i:
            block = f.load(p.address(f"{name}_block") + i.i * 8, I64, 8)
            f.store(private + base + block * stride, out + i.i * 8, 8)
        out = out + count * 8
    f.ret()
    return f


def _emit_task(
    module: ir.Module,
    parts: Parts,
    safe: Function,
    stage_a: Function,
    turn: Function,
    store: Function,
) -> Function:
    """One row block × some panels: all of K, all products, then write-back."""
    args = {"params": PTR, "private": PTR} | dict.fromkeys(["jc", "ic", "panel0", "panels"], I64)
    f = Function(module, "task", args)
    params, private, jc, ic, panel0, panels = f.args()
    p = Fields(f, params)
    mr, nr, size = parts.mr, parts.nr, parts.size
    height = sub_block(f, (p.M - ic * p.mc).min(p.mc), p.m, mr)
    width = sub_block(f, (p.N - jc * p.nc).min(p.nc), p.n, nr)
    own_stats = f.stack(parts.element, 8)
    reset_stats(f, own_stats, parts)
    shared_a = p.address("packed_a") + ic * p.packed_a_step
    alone = p.packed_a.eq(0)
    stats = f.select(alone, own_stats, shared_a + (p.packed_a_step - LINE))
    stage, pack = private + p.at_stage_a, private + p.at_pack_a
    gave_up = p.address("sync") + LINE
    soon = ahead.record(f)
    with f.loop(0, f.ceil_div(p.K, p.kc)) as pc, f.when(f.load_atomic(gave_up).eq(0)):
        deep = sub_block(f, (p.K - pc.i * p.kc).min(p.kc), p.k, parts.chunk)
        with f.when(alone):
            f.call(stage_a, params, private, ic, pc.i, stats, stage)
        with f.when(p.guard.ne(0)), f.when(f.call(safe, params, stats).eq(0)):
            f.exchange(gave_up, 1)
        first_flags = f.pointer(f.select(pc.i.eq(0), p.c_first, p.c_never))
        with f.when(p.in_turn.ne(0)):
            f.call(
                turn, params, private, first_flags, soon,
                jc, pc.i, panel0, panels, height // mr,
            )  # fmt: skip
        with f.loop(0, f.select(p.in_turn.eq(0), p.products, 0)) as r:
            with f.when(alone & p.plain.eq(0)):
                sum_a(f, p, parts, private, r.i, pack, height * deep)
            own_a = f.select(p.plain.eq(0), pack, stage)
            ready_a = shared_a + (pc.i * p.products + r.i) * p.a_block_bytes
            c_at, c_terms = sum_range(f, p, "c", r.i)
            b, b_step = packed_panel(p, parts, jc, pc.i, r.i, panel0), p.k_pad * (nr * size)
            ahead.describe(f, soon, b + b_step, panels, deep * (nr * size), b_step)
            f.call(
                parts.macro, f.select(alone, own_a, ready_a), b, b_step, deep,
                height // mr, panels,
                c_terms, table(f, p, private, "c") + c_at * 8,
                p.address("c_coef") + c_at * size, first_flags + c_at * 8, 0, soon,
            )  # fmt: skip
    with f.when(f.load_atomic(gave_up).eq(0)):
        f.call(store, params, private, jc, ic, panel0, panels, height, width)
    f.ret()
    return f
