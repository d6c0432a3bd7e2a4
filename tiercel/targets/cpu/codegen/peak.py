"""The machine's measured multiply-add peak and clock: chains of FMAs, nothing else."""

from __future__ import annotations

from llvmlite import ir

from tiercel.targets.cpu.codegen.emit import Function
from tiercel.targets.cpu.codegen.values import F64, I64, vec


def emit(module: ir.Module, element: ir.Type, lanes: int, registers: int) -> None:
    """Emit ``fma_chains(n) -> float64``: n iterations of independent vector FMAs.

    ``fma_chain``: of a single one, each waiting for the one before.
    """
    for name, chains in (("fma_chains", chain_count(registers)), ("fma_chain", 1)):
        _emit(Function(module, name, {"n": I64}, F64, export=True), chains, vec(element, lanes))


def _emit(f: Function, chains: int, vtype: ir.Type) -> None:
    (n,) = f.args()
    x, y = f.const(vtype, 0.999), f.const(vtype, 1e-3)
    start = [f.const(vtype, float(i)) for i in range(chains)]
    with f.loop(0, n, carry=start) as i:
        i.next(*(f.fma(acc, x, y) for acc in i.carried))
    total = i.results[0]
    for acc in i.results[1:]:
        total = total + acc
    one = f.reduce_add(total)
    f.ret(one if one.type == F64 else f.cast(one, F64, "fpext"))


def chain_count(registers: int) -> int:
    """12 chains with 16 registers, 24 with 32: enough for two FMA pipes of latency 4 to 5."""
    return 12 if registers < 32 else 24
