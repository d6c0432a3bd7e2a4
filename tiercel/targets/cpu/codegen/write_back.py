"""From scratch to C: which finished tiles go where; ``store.py`` writes one."""

from __future__ import annotations

from llvmlite import ir

from tiercel.targets.cpu.codegen.emit import Function
from tiercel.targets.cpu.codegen.fields import Fields, Parts, Record
from tiercel.targets.cpu.codegen.values import I64, PTR
from tiercel.targets.cpu.params import TARGET


def emit(module: ir.Module, parts: Parts) -> Function:
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
