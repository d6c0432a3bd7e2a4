"""How a dtype lies in memory, and how it becomes the compute dtype and back."""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from tiercel.targets.cpu.codegen.emit import Function
from tiercel.targets.cpu.codegen.values import F16, F32, F64, I16, I32, Val, splat_const, vec


def _like(x: Val, element: ir.Type) -> ir.Type:
    return vec(element, x.type.count) if isinstance(x.type, ir.VectorType) else element


@dataclass(frozen=True)
class Storage:
    """One dtype in memory: its name, bytes and LLVM type."""

    name: str
    size: int
    memory: ir.Type

    def widen(self, f: Function, x: Val, element: ir.Type) -> Val:
        """Memory value (scalar or vector) → compute value; always exact."""
        if self.name == "bfloat16":  # the upper half of a float32
            bits = f.cast(x, _like(x, I32), "zext")
            high = Val(f, f.b.shl(bits.v, splat_const(bits.type, 16)))
            return f.cast(high, _like(x, F32), "bitcast")
        return f.cast(x, _like(x, element), "fpext") if self.name == "float16" else x

    def narrow(self, f: Function, x: Val) -> Val:
        """Compute value → memory value, rounded to nearest even."""
        if self.name == "float16":
            return f.cast(x, _like(x, F16), "fptrunc")
        if self.name != "bfloat16":
            return x
        bits = f.cast(x, _like(x, I32), "bitcast")
        high = Val(f, f.b.lshr(bits.v, splat_const(bits.type, 16)))
        rounded = bits + (high & 1) + 0x7FFF
        rounded = Val(f, f.b.lshr(rounded.v, splat_const(bits.type, 16)))
        is_nan = Val(f, f.b.fcmp_unordered("uno", x.v, x.v))
        return f.cast(f.select(is_nan, high | 0x40, rounded), _like(x, I16), "trunc")


STORAGE = {
    "float32": Storage("float32", 4, F32),
    "float64": Storage("float64", 8, F64),
    "float16": Storage("float16", 2, F16),
    "bfloat16": Storage("bfloat16", 2, I16),
}
COMPUTE = {4: F32, 8: F64}  # compute dtype by element size
