"""The guard's verdict on the statistics of both operands (``norms.py``), in generated code."""

from __future__ import annotations

from llvmlite import ir

from tiercel.targets.cpu.codegen.emit import Function
from tiercel.targets.cpu.codegen.fields import Fields, Parts
from tiercel.targets.cpu.codegen.values import F64, I64, PTR, Val
from tiercel.targets.cpu.params import LINE


def emit(module: ir.Module, parts: Parts) -> Function:
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
