"""Values of a function under construction, with operators: ``p + i * stride`` adds instructions.

What makes values, and puts them in order, is the ``Function`` of ``emit.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llvmlite import ir

if TYPE_CHECKING:
    from tiercel.targets.cpu.codegen.emit import Function

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
F16, F32, F64 = ir.HalfType(), ir.FloatType(), ir.DoubleType()
PTR = ir.PointerType()
VOID = ir.VoidType()


def vec(element: ir.Type, lanes: int) -> ir.Type:
    """The vector type of ``lanes`` elements."""
    return ir.VectorType(element, lanes)


def splat_const(ty: ir.Type, value: float | int) -> ir.Constant:
    """A constant of scalar or vector type ``ty`` with ``value`` in every lane."""
    if isinstance(ty, ir.VectorType):
        return ir.Constant(ty, [ir.Constant(ty.element, value)] * ty.count)
    return ir.Constant(ty, value)


def _is_float(ty: ir.Type) -> bool:
    element = ty.element if isinstance(ty, ir.VectorType) else ty
    return isinstance(element, (ir.HalfType, ir.FloatType, ir.DoubleType))


@dataclass(frozen=True, eq=False)
class Val:
    """An SSA value with operators. Integers are signed; pointers move in bytes (``p + n``)."""

    f: Function
    v: Any  # ir.Value; llvmlite's decorated builder methods show no result type

    @property
    def type(self) -> ir.Type:
        return self.v.type

    @property
    def element(self) -> ir.Type:
        """Type of one lane; that of a scalar itself."""
        return self.type.element if isinstance(self.type, ir.VectorType) else self.type

    def like(self, element: ir.Type) -> ir.Type:
        """The type of as many lanes of ``element`` as this value has."""
        return vec(element, self.type.count) if isinstance(self.type, ir.VectorType) else element

    def _other(self, x: Val | int | float) -> ir.Value:
        return x.v if isinstance(x, Val) else splat_const(self.type, x)

    def _bin(self, x: Val | int | float, on_int: str, on_float: str) -> Val:
        op = on_float if _is_float(self.type) else on_int
        return Val(self.f, getattr(self.f.b, op)(self.v, self._other(x)))

    def __add__(self, x: Val | int | float) -> Val:
        if isinstance(self.type, ir.PointerType):
            offset = x.v if isinstance(x, Val) else ir.Constant(I64, x)
            return Val(self.f, self.f.b.gep(self.v, [offset], source_etype=I8))
        return self._bin(x, "add", "fadd")

    def __sub__(self, x: Val | int | float) -> Val:
        return self._bin(x, "sub", "fsub")

    def __mul__(self, x: Val | int | float) -> Val:
        return self._bin(x, "mul", "fmul")

    def __rmul__(self, x: int | float) -> Val:
        return self * x

    def __radd__(self, x: int | float) -> Val:
        return self + x

    def __rsub__(self, x: int | float) -> Val:
        return Val(self.f, splat_const(self.type, x)) - self

    def __truediv__(self, x: Val | int | float) -> Val:
        return self._bin(x, "sdiv", "fdiv")

    def __floordiv__(self, x: Val | int) -> Val:
        return self._bin(x, "sdiv", "fdiv")

    def __mod__(self, x: Val | int) -> Val:
        return self._bin(x, "srem", "frem")

    def __neg__(self) -> Val:
        return Val(self.f, self.f.b.fneg(self.v)) if _is_float(self.type) else 0 - self

    def _cmp(self, op: str, x: Val | int | float) -> Val:
        compare = self.f.b.fcmp_ordered if _is_float(self.type) else self.f.b.icmp_signed
        return Val(self.f, compare(op, self.v, self._other(x)))

    def __lt__(self, x: Val | int | float) -> Val:
        return self._cmp("<", x)

    def __le__(self, x: Val | int | float) -> Val:
        return self._cmp("<=", x)

    def __gt__(self, x: Val | int | float) -> Val:
        return self._cmp(">", x)

    def __ge__(self, x: Val | int | float) -> Val:
        return self._cmp(">=", x)

    def eq(self, x: Val | int | float) -> Val:
        return self._cmp("==", x)

    def ne(self, x: Val | int | float) -> Val:
        return self._cmp("!=", x)

    def __and__(self, x: Val | int) -> Val:
        return Val(self.f, self.f.b.and_(self.v, self._other(x)))

    def __or__(self, x: Val | int) -> Val:
        return Val(self.f, self.f.b.or_(self.v, self._other(x)))

    def __lshift__(self, x: Val | int) -> Val:
        return Val(self.f, self.f.b.shl(self.v, self._other(x)))

    def shift_right(self, x: Val | int) -> Val:
        """Logical shift: zeros come in at the top."""
        return Val(self.f, self.f.b.lshr(self.v, self._other(x)))

    def min(self, x: Val | int) -> Val:
        return self.f.select(self < x, self, x)

    def max(self, x: Val | int) -> Val:
        return self.f.select(self > x, self, x)
