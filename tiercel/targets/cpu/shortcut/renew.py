"""``again``: the call of a product whose parameter block is known but for where the arrays lie.

Python needs 60 µs between products that empty the caches to find three addresses, compare them, and
write them and zeros into the block; this takes the objects and does it in one call.
"""

from __future__ import annotations

from llvmlite import ir

from tiercel.targets.cpu.codegen.emit import Function
from tiercel.targets.cpu.codegen.fields import Fields
from tiercel.targets.cpu.codegen.values import I64, PTR, Val
from tiercel.targets.cpu.params import DONE, LINE, UNLIKE
from tiercel.targets.cpu.shortcut.address import AT


def emit(module: ir.Module, gemm: Function, size: int) -> None:
    """Emit the exported ``again(params, a, b, c, run) -> DONE, REFUSED or UNLIKE``.

    ``a``, ``b`` and ``c`` are array *objects* of the shapes and strides in the block, which has one
    record for each. ``run``: 0 where other calls run the product, on several threads.
    """
    args = {"params": PTR, "a": PTR, "b": PTR, "c": PTR, "run": I64}
    f = Function(module, "again", args, I64, export=True)
    params, *objects, run = f.args()
    p = Fields(f, params)
    at_a, at_b, at_c = (f.load(x + AT, I64, 8) for x in objects)
    low_a, high_a = _reach(f, at_a, p.M, p.K, p.a_rs, p.a_cs, p.a_plane)
    low_b, high_b = _reach(f, at_b, p.K, p.N, p.b_rs, p.b_cs, p.b_plane)
    low_c, high_c = _reach(f, at_c, p.M, p.N, p.c_rs, p.c_cs, p.c_plane)
    alignment = (p.a_plane * 2).min(size)  # of halves 2, of complex numbers that of one part
    like = ((at_a | at_b | at_c) & (alignment - 1)).eq(0)
    like = like & ((high_c <= low_a) | (high_a <= low_c))
    like = like & ((high_c <= low_b) | (high_b <= low_c))
    answer = f.stack(I64, 1)
    f.store(f.i64(UNLIKE), answer, 8)
    with f.when(like):
        for name, at in zip("abc", (at_a, at_b, at_c), strict=True):
            f.store(at, p.address(name), 8)
        sync, end = p.address("sync"), p.tickets + (f.ceil_div(p.N, p.nc) * 2 + 1) * LINE
        with f.loop(0, end - p.sync, 8) as word:
            f.store(f.i64(0), sync + word.i, 8)
        f.store(f.i64(DONE), answer, 8)
        with f.when(run.ne(0)):
            f.store(f.call(gemm, params, 0), answer, 8)
    f.ret(f.load(answer, I64, 8))


def _reach(
    f: Function, at: Val, rows: Val, cols: Val, rs: Val, cs: Val, plane: Val
) -> tuple[Val, Val]:
    """Addresses of the lowest element of an array, and behind the highest."""
    down, right = (rows - 1) * rs, (cols - 1) * cs
    return at + down.min(0) + right.min(0), at + down.max(0) + right.max(0) + plane * 2
