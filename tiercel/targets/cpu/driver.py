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

from dataclasses import dataclass

from llvmlite import ir

from tiercel.targets.cpu import ahead, norms
from tiercel.targets.cpu.emit import F64, I64, PTR, Function, Val
from tiercel.targets.cpu.params import LINE, OFFSET, TARGET, TERM
from tiercel.targets.cpu.sync import barrier

#: Where threads share packed A, each one's last task is cut into so many, so that none waits long
#: for the others. 4096³ on 16 threads, six rounds in turns: float64 1.06, float32 1.03.
LATE = 4


@dataclass(frozen=True)
class Parts:
    """The functions that the driver calls, and the sizes they were built for."""

    macro: Function
    combine: Function
    stream: Function
    rows: Function
    columns: Function
    merge: Function
    load_tiles: Function
    load_panels: Function
    store_tile: Function
    element: ir.Type
    size: int
    mr: int
    nr: int
    chunk: int


class Fields:
    """Reads named fields of the parameter block: ``p.M``, ``p.address("a")``."""

    def __init__(self, f: Function, block: Val) -> None:
        self._f, self._block = f, block

    def __getattr__(self, name: str) -> Val:
        return self._f.load(self._block + OFFSET[name], I64, 8)

    def address(self, name: str) -> Val:
        return self._f.load(self._block + OFFSET[name], PTR, 8)

    def number(self, name: str) -> Val:
        return self._f.load(self._block + OFFSET[name], F64, 8)


def round_up(f: Function, x: Val, multiple: Val | int) -> Val:
    """The next multiple of ``multiple`` from x on."""
    return f.ceil_div(x, multiple) * multiple


def sub_block(f: Function, extent: Val, parts: Val, multiple: int) -> Val:
    """Size of one of ``parts`` equal sub-blocks of ``extent``, in whole register tiles."""
    return round_up(f, f.ceil_div(extent, parts), multiple)


def emit(module: ir.Module, parts: Parts) -> Function:
    """Emit the exported ``gemm(params, thread) -> int``; 0: done, 1: the guard gave up."""
    tables = _emit_tables(module, parts)
    pack = _emit_pack_b(module, parts)
    safe = _emit_guard(module, parts)
    store = _emit_store(module, parts)
    stage_a = _emit_stage_a(module, parts)
    pack_a = _emit_pack_a(module, parts, stage_a)
    in_turn = _emit_in_turn(module, parts)
    task = _emit_task(module, parts, safe, stage_a, in_turn, store)
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
            lambda t: f.call(pack_a, params, private, t),
        )  # fmt: skip
    with f.loop(0, col_steps) as jc:
        cols = (p.N - jc.i * p.nc).min(p.nc)
        panels = sub_block(f, cols, p.n, parts.nr) // parts.nr
        groups = f.ceil_div(panels, p.pack_panels)
        packs = p.b_ready.eq(0) & p.in_turn.eq(0)
        with f.when(packs):
            with f.when(jc.i.eq(0) | (p.M > 0)):  # M = 0: only pack, scales over all of B
                _reset_stats(f, stats, parts)
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


def _reset_stats(f: Function, stats: Val, parts: Parts) -> None:
    huge = {4: 3.0e38, 8: 1.0e308}[parts.size]
    for index, value in ((norms.LEAST, huge), (norms.MOST, 0.0), (norms.TOTAL, 0.0)):
        f.store(f.const(parts.element, value), stats + index * parts.size, parts.size)


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


def _table(f: Function, p: Fields, private: Val, name: str) -> Val:
    """Address of the pointer table of operand ``name`` made by ``tables``."""
    at = private + p.at_tables
    for before in "abc"[: "abc".index(name)]:
        at = at + f.load(p.address(f"{before}_start") + p.products * 8, I64, 8) * 8
    return at


def _sum_range(f: Function, p: Fields, name: str, r: Val) -> tuple[Val, Val]:
    start = p.address(f"{name}_start") + r * 8
    first = f.load(start, I64, 8)
    return first, f.load(start + 8, I64, 8) - first


def _packed(f: Function, p: Fields, parts: Parts, jc: Val, pc: Val, r: Val, panel: Val) -> Val:
    """Address of a packed panel of B. Steps of jc share one buffer unless all of B is packed."""
    index = (pc * p.products + r) * p.panels + panel
    step = jc * p.packed_step
    return p.address("packed_b") + step + index * (p.k_pad * (parts.nr * parts.size))


class Record:
    """Record ``index`` of an array of terms or targets: named words, see ``params.py``."""

    def __init__(self, f: Function, array: Val, index: Val | int, names: tuple[str, ...]) -> None:
        self._f, self._names = f, names
        self._at = array + f.i64(index) * (8 * len(names))

    def _load(self, name: str, ty: ir.Type) -> Val:
        return self._f.load(self._at + 8 * self._names.index(name), ty, 8)

    def __getattr__(self, name: str) -> Val:
        return self._load(name, I64)

    def pointer(self, name: str) -> Val:
        return self._load(name, PTR)

    def number(self, name: str) -> Val:
        return self._load(name, F64)


class Pair:
    """Arguments of ``combine`` for first + coef · second, on the stack."""

    def __init__(self, f: Function, parts: Parts) -> None:
        self._f, self._parts = f, parts
        self.pointers, self.coefs = f.stack(PTR, 2), f.stack(parts.element, 2)

    def fill(self, first: Val, second: Val, coef: Val) -> None:
        f, size = self._f, self._parts.size
        f.store(first, self.pointers, 8)
        f.store(second, self.pointers + 8, 8)
        f.store(f.const(self._parts.element, 1.0), self.coefs, size)
        narrow = f.cast(coef, self._parts.element, "fptrunc") if size == 4 else coef
        f.store(narrow, self.coefs + size, size)


def _emit_pack_b(module: ir.Module, parts: Parts) -> Function:
    """One task of packing: ``pack_panels`` panels of every summed block of B, kc of K deep.

    The source blocks are staged a slice of K at a time, small enough to stay in cache while all
    the sums are formed from it: each element of B is read from memory once.
    """
    args = {"params": PTR, "private": PTR} | dict.fromkeys(["thread", "jc", "pc", "group"], I64)
    f = Function(module, "pack_b", args)
    params, private, thread, jc, pc, group = f.args()
    p = Fields(f, params)
    nr, size = parts.nr, parts.size
    panel0 = group * p.pack_panels
    cols = (p.N - jc * p.nc).min(p.nc)
    width = sub_block(f, cols, p.n, nr)
    count = (width // nr - panel0).min(p.pack_panels)
    depth = (p.K - pc * p.kc).min(p.kc)
    height = sub_block(f, depth, p.k, parts.chunk)
    at_row, at_col = pc * p.kc, jc * p.nc
    with f.either(p.plain.ne(0)) as (plain, summed):
        with plain:  # one block, one product: straight into the packed buffer
            term = Record(f, p.address("b"), 0, TERM)
            at = term.pointer("at") + at_row * p.b_rs + (at_col + panel0 * nr) * p.b_cs
            f.call(
                parts.load_panels, _packed(f, p, parts, jc, pc, f.i64(0), panel0),
                p.k_pad * (nr * size), at, p.b_rs, p.b_cs,
                depth, (cols - panel0 * nr).min(count * nr), height, count,
            )  # fmt: skip
        with summed:
            stage = private + p.at_stage_b
            sums = stage + p.planes * p.k * p.n * p.b_block_bytes
            blocks = p.planes * p.k * p.n
            sums_bytes = p.pack_panels * (nr * size)
            spare = sums + p.b_terms * blocks * sums_bytes
            pair = Pair(f, parts)
            with f.loop(0, p.b_terms * blocks * p.pack_panels * nr) as i:
                f.store(f.const(parts.element, 0.0), sums + i.i * size, size)
            with f.loop(0, height, p.slice) as at:
                rows_pad = (height - at.i).min(p.slice)
                panel_bytes = rows_pad * (nr * size)
                with f.loop(0, blocks) as block:
                    plane, rest = block.i // (p.k * p.n), block.i % (p.k * p.n)
                    bk, bn = rest // p.n, rest % p.n
                    row0, col0 = bk * height + at.i, bn * width + panel0 * nr
                    to = stage + block.i * p.b_block_bytes
                    row, col = at_row + row0, at_col + col0
                    with f.loop(0, p.b_terms) as t:
                        term = Record(f, p.address("b"), t.i, TERM)
                        into = f.select(t.i.eq(0), to, spare)
                        inside = (depth - row0).min(height - at.i).min(rows_pad)
                        rows = (term.rows - row).min(inside).max(0)
                        inside = (cols - col0).min((width - panel0 * nr).min(count * nr))
                        wide = (term.cols - col).min(inside).max(0)
                        f.call(
                            parts.load_panels, into, panel_bytes,
                            term.pointer("at") + plane * p.b_plane + row * p.b_rs + col * p.b_cs,
                            p.b_rs, p.b_cs, rows, wide, rows_pad, count,
                        )  # fmt: skip
                        with f.when(p.guard.ne(0)), f.loop(0, count) as g:
                            f.call(
                                parts.columns, into + g.i * panel_bytes, rows_pad,
                                sums + (t.i * blocks + block.i) * sums_bytes + g.i * (nr * size),
                            )  # fmt: skip
                        with f.when(t.i > 0):
                            pair.fill(to, spare, term.number("coef"))
                            f.call(
                                parts.combine, to, count * panel_bytes, 2,
                                pair.pointers, pair.coefs, 0,
                            )  # fmt: skip
                sources, coefs = _table(f, p, private, "b"), p.address("b_coef")
                with f.loop(0, p.products) as r:
                    first, terms = _sum_range(f, p, "b", r.i)
                    with f.loop(0, count) as g:
                        f.call(
                            parts.stream,
                            _packed(f, p, parts, jc, pc, r.i, panel0 + g.i) + at.i * (nr * size),
                            panel_bytes, terms, sources + first * 8, coefs + first * size,
                            g.i * panel_bytes,
                        )  # fmt: skip
            # Each view by itself: the sum of a large and a small column looks like a large one.
            # Only its columns inside B: padding is no column of norm 0.
            with f.when(p.guard.ne(0)), f.loop(0, p.b_terms) as t, f.loop(0, blocks) as block:
                bn, bk = block.i % p.n, block.i // p.n % p.k
                term = Record(f, p.address("b"), t.i, TERM)
                col0, row0 = bn * width + panel0 * nr, bk * height
                wide = (term.cols - (at_col + col0)).min(cols - col0).min(count * nr).max(0)
                tall = (depth - row0).min(height).min(term.rows - (at_row + row0))
                with f.when(tall > 0):
                    f.call(
                        parts.merge, sums + (t.i * blocks + block.i) * sums_bytes, wide,
                        p.address("stats_b") + thread * LINE,
                        norms.is_end(f, tall, f.ceil_div(p.K.min(p.kc), p.k)),
                    )  # fmt: skip
    f.ret()
    return f


def _emit_guard(module: ir.Module, parts: Parts) -> Function:
    """``safe(params, stats_a) -> 1`` when a scheme's sums lose nothing that classical keeps.

    Scales must agree within ``limit`` (product of the two operands' largest : smallest norms), and
    no intermediate sum may come near overflow. NaN and Inf fail every comparison.
    """
    f = Function(module, "safe", {"params": PTR, "stats_a": PTR}, I64)
    params, stats_a = f.args()
    p = Fields(f, params)
    element, size = parts.element, parts.size

    def wide(x: Val) -> Val:
        return f.cast(x, F64, "fpext") if size == 4 else x

    def field(stats: Val, index: int) -> Val:
        return wide(f.load(stats + index * size, element, size))

    start = [f.const(F64, 1.0e308), f.const(F64, 0.0), f.const(F64, 0.0)]
    with f.loop(0, p.stats_count, carry=start) as t:
        stats = p.address("stats_b") + t.i * LINE
        least, most, total = (field(stats, i) for i in range(3))
        t.next(
            f.select(least < t.carried[0], least, t.carried[0]),
            f.select(most > t.carried[1], most, t.carried[1]),
            t.carried[2] + total,
        )
    least_b, most_b, total_b = t.results
    least_a, most_a, total_a = (field(stats_a, i) for i in range(3))
    limit, headroom = p.number("limit"), p.number("headroom")
    ok = (most_a / least_a) * (most_b / least_b) <= limit
    ok = ok & (most_a * most_b <= headroom) & (most_a <= headroom) & (most_b <= headroom)
    ok = ok & (total_a + total_b <= 1.0e308)
    f.ret(f.cast(ok, I64, "zext"))
    return f


def _emit_stage_a(module: ir.Module, parts: Parts) -> Function:
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


def _sum_a(f: Function, p: Fields, parts: Parts, private: Val, r: Val, to: Val, count: Val) -> None:
    """Pack product r's sum of the staged blocks of A, ``count`` elements."""
    at, terms = _sum_range(f, p, "a", r)
    f.call(
        parts.combine, to, count * parts.size, terms,
        _table(f, p, private, "a") + at * 8, p.address("a_coef") + at * parts.size, 0,
    )  # fmt: skip


def _emit_pack_a(module: ir.Module, parts: Parts, stage_a: Function) -> Function:
    """One task of packing A for all threads: every sum of one row block, all of K."""
    f = Function(module, "pack_a", {"params": PTR, "private": PTR, "ic": I64})
    params, private, ic = f.args()
    p = Fields(f, params)
    height = sub_block(f, (p.M - ic * p.mc).min(p.mc), p.m, parts.mr)
    packed = p.address("packed_a") + ic * p.packed_a_step
    stats = packed + (p.packed_a_step - LINE)
    _reset_stats(f, stats, parts)
    with f.loop(0, f.ceil_div(p.K, p.kc)) as pc:
        deep = sub_block(f, (p.K - pc.i * p.kc).min(p.kc), p.k, parts.chunk)
        to = packed + pc.i * p.products * p.a_block_bytes
        f.call(stage_a, params, private, ic, pc.i, stats, to)
        with f.when(p.plain.eq(0)), f.loop(0, p.products) as r:
            _sum_a(f, p, parts, private, r.i, to + r.i * p.a_block_bytes, height * deep)
    f.ret()
    return f


def _emit_in_turn(module: ir.Module, parts: Parts) -> Function:
    """The plain product of a staged block of A: some panels of B are packed, and used at once.

    Meanwhile the next ones come to L2 from where the caller stored them.
    """
    names = ["jc", "pc", "panel0", "panels", "tiles"]
    args = {"params": PTR, "private": PTR, "first": PTR, "soon": PTR} | dict.fromkeys(names, I64)
    f = Function(module, "in_turn", args)
    params, private, first, soon, jc, pc, panel0, panels, tiles = f.args()
    p = Fields(f, params)
    nr, size = parts.nr, parts.size
    packed, step = private + p.at_pack_b, p.k_pad * (nr * size)
    b, strides, item = Record(f, p.address("b"), 0, TERM), (p.b_rs, p.b_cs), p.b_plane * 2
    depth = (p.K - pc * p.kc).min(p.kc)
    deep = round_up(f, depth, parts.chunk)
    groups = f.ceil_div(panels, p.pack_panels)
    with f.loop(0, groups) as g:
        first_panel = g.i * p.pack_panels
        count = (panels - first_panel).min(p.pack_panels)
        row, col = pc * p.kc, jc * p.nc + (panel0 + first_panel) * nr
        f.call(
            parts.load_panels, packed, step, b.pointer("at") + row * p.b_rs + col * p.b_cs,
            *strides, depth, (p.N - col).min(count * nr), deep, count,
        )  # fmt: skip
        last = g.i.eq(groups - 1)
        row = f.select(last, row + p.kc, row)
        col = f.select(last, jc * p.nc + panel0 * nr, col + p.pack_panels * nr)
        ahead.describe_block(
            f, soon, b.pointer("at") + row * p.b_rs + col * p.b_cs, strides, item,
            (p.K - row).min(p.kc).max(0), (p.N - col).min(p.pack_panels * nr).max(0),
        )  # fmt: skip
        f.call(
            parts.macro, private + p.at_stage_a, packed, step, deep, tiles, count,
            1, _table(f, p, private, "c"), p.address("c_coef"), first, first_panel, soon,
        )  # fmt: skip
    f.ret()
    return f


def _emit_task(
    module: ir.Module,
    parts: Parts,
    safe: Function,
    stage_a: Function,
    in_turn: Function,
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
    _reset_stats(f, own_stats, parts)
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
                in_turn, params, private, first_flags, soon,
                jc, pc.i, panel0, panels, height // mr,
            )  # fmt: skip
        with f.loop(0, f.select(p.in_turn.eq(0), p.products, 0)) as r:
            with f.when(alone & p.plain.eq(0)):
                _sum_a(f, p, parts, private, r.i, pack, height * deep)
            own_a = f.select(p.plain.eq(0), pack, stage)
            ready_a = shared_a + (pc.i * p.products + r.i) * p.a_block_bytes
            c_at, c_terms = _sum_range(f, p, "c", r.i)
            b, b_step = _packed(f, p, parts, jc, pc.i, r.i, panel0), p.k_pad * (nr * size)
            ahead.describe(f, soon, b + b_step, panels, deep * (nr * size), b_step)
            f.call(
                parts.macro, f.select(alone, own_a, ready_a), b, b_step, deep,
                height // mr, panels,
                c_terms, _table(f, p, private, "c") + c_at * 8,
                p.address("c_coef") + c_at * size, first_flags + c_at * 8, 0, soon,
            )  # fmt: skip
    with f.when(f.load_atomic(gave_up).eq(0)):
        f.call(store, params, private, jc, ic, panel0, panels, height, width)
    f.ret()
    return f


def _emit_store(module: ir.Module, parts: Parts) -> Function:
    """Write the finished scratch of one task to C."""
    names = ["jc", "ic", "panel0", "panels", "height", "width"]
    f = Function(module, "store", {"params": PTR, "private": PTR} | dict.fromkeys(names, I64))
    params, private, jc, ic, panel0, panels, height, width = f.args()
    p = Fields(f, params)
    mr, nr, size = parts.mr, parts.nr, parts.size
    rows, cols = (p.M - ic * p.mc).min(p.mc), (p.N - jc * p.nc).min(p.nc)
    scratch = private + p.at_scratch
    tiles = height // mr
    # Along the rows of C, or the columns of one that is contiguous there: in long runs.
    down = p.c_rs.eq(p.c_plane * 2)
    outer, inner = f.select(down, panels, tiles), f.select(down, tiles, panels)
    with f.loop(0, p.planes * p.m * p.n) as block:
        plane, rest = block.i // (p.m * p.n), block.i % (p.m * p.n)
        bm, bn = rest // p.n, rest % p.n
        with f.loop(0, outer) as slow, f.loop(0, inner) as fast:
            it, jt = f.select(down, fast.i, slow.i), f.select(down, slow.i, fast.i)
            row0, col0 = bm * height + it * mr, bn * width + (panel0 + jt) * nr
            row, col = ic * p.mc + row0, jc * p.nc + col0
            tile = scratch + block.i * p.c_block_bytes
            tile = tile + (jt * tiles + it) * (mr * nr * size)
            with f.loop(0, p.c_targets) as t:
                target = Record(f, p.address("c"), t.i, TARGET)
                tall = (target.rows - row).min(rows - row0).min(mr)
                wide = (target.cols - col).min(cols - col0).min(nr)
                bias = target.bias
                here = bias + plane * p.bias_plane + col * size
                with f.when((tall > 0) & (wide > 0)):
                    f.call(
                        parts.store_tile, tile,
                        target.pointer("at") + plane * p.c_plane + row * p.c_rs + col * p.c_cs,
                        p.c_rs, p.c_cs, tall, wide, target.number("coef"), target.accumulate,
                        f.select(bias.eq(0), bias, here), target.activate,
                    )  # fmt: skip
    f.ret()
    return f
