"""A plain product of few rows: panels of B are packed and used at once, in turn."""

from __future__ import annotations

from llvmlite import ir

from tiercel.targets.cpu.codegen import ahead
from tiercel.targets.cpu.codegen.emit import Function
from tiercel.targets.cpu.codegen.fields import Fields, Parts, Record, round_up, table
from tiercel.targets.cpu.codegen.values import I64, PTR
from tiercel.targets.cpu.params import TERM


def emit(module: ir.Module, parts: Parts) -> Function:
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
            1, table(f, p, private, "c"), p.address("c_coef"), first, first_panel, soon,
        )  # fmt: skip
    f.ret()
    return f
