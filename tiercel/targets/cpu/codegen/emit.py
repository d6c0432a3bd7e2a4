"""A thin structured layer over llvmlite: typed values with operators, counted loops, branches.

The kernels of this target are written with it so that they read like the loops they are::

    with f.loop(0, rows) as i:
        f.store(f.load(src + i * stride, F32) * two, dst + i * 4)

Everything is in SSA form from the start (loop-carried values are explicit), so no LLVM mid-level
pass has to run: object code is ready in a fraction of the usual compile time and register
allocation of the micro-kernels is not disturbed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from llvmlite import ir

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


@dataclass
class Loop:
    """Handle of a running loop: the induction value and the carried values.

    Inside the body ``carried`` are the values of this iteration; ``next(...)`` names those of the
    following one. After the loop ``results`` are the final values.
    """

    i: Val
    carried: list[Val]
    following: list[Val] = field(default_factory=list)
    results: list[Val] = field(default_factory=list)

    def next(self, *values: Val) -> None:
        self.following = list(values)


class Turn:
    """Counter of an endless loop; compare it like a value."""

    def __init__(self, f: Function) -> None:
        self._f, self._slot = f, f.stack(I64, 1, 8)
        f.store(f.i64(0), self._slot, 8)

    def _now(self) -> Val:
        return self._f.load(self._slot, I64, 8)

    def advance(self) -> None:
        self._f.store(self._now() + 1, self._slot, 8)

    def restart(self) -> None:
        self._f.store(self._f.i64(0), self._slot, 8)

    def __lt__(self, n: int) -> Val:
        return self._now() < n

    def __ge__(self, n: int) -> Val:
        return self._now() >= n


class Function:
    """One function under construction."""

    def __init__(
        self,
        module: ir.Module,
        name: str,
        args: Mapping[str, ir.Type],
        returns: ir.Type = VOID,
        *,
        export: bool = False,
    ) -> None:
        self.module = module
        self.fn = ir.Function(module, ir.FunctionType(returns, list(args.values())), name)
        self.fn.linkage = "external" if export else "internal"
        self.fn.attributes.add("nounwind")
        self.fn.attributes.add("noinline")
        for arg, arg_name in zip(self.fn.args, args, strict=True):
            arg.name = arg_name
        self.b = ir.IRBuilder(self.fn.append_basic_block("entry"))
        self._entry = self.fn.entry_basic_block

    # -- values ------------------------------------------------------------------------------
    def args(self) -> list[Val]:
        return [Val(self, a) for a in self.fn.args]

    def const(self, ty: ir.Type, value: float | int) -> Val:
        return Val(self, splat_const(ty, value))

    def i64(self, x: Val | int) -> Val:
        return x if isinstance(x, Val) else self.const(I64, x)

    def select(self, cond: Val, yes: Val | int | float, no: Val | int | float) -> Val:
        ty = yes.type if isinstance(yes, Val) else no.type  # type: ignore[union-attr]
        y = yes.v if isinstance(yes, Val) else splat_const(ty, yes)
        n = no.v if isinstance(no, Val) else splat_const(ty, no)
        return Val(self, self.b.select(cond.v, y, n))

    def cast(self, x: Val, ty: ir.Type, op: str) -> Val:
        return Val(self, getattr(self.b, op)(x.v, ty))

    def ceil_div(self, x: Val, y: Val | int) -> Val:
        return (x + (y - 1)) // y

    def stack(self, ty: ir.Type, count: int, align: int = 64) -> Val:
        """A stack array of ``count`` elements, allocated once on entry."""
        with self.b.goto_block(self._entry):
            slot = self.b.alloca(ty, count)
            slot.align = align  # pyright: ignore[reportAttributeAccessIssue]
            slot.type = PTR  # llvmlite gives stack slots the older, typed pointer
        return Val(self, slot)

    # -- memory ------------------------------------------------------------------------------
    def load(self, p: Val, ty: ir.Type, align: int = 1) -> Val:
        return Val(self, self.b.load(p.v, align=align, typ=ty))

    def store(self, x: Val, p: Val, align: int = 1, *, stream: bool = False) -> None:
        """Store; ``stream``: past the caches (the next atomic operation makes it visible)."""
        instruction = self.b.store(x.v, p.v, align=align)
        if stream:
            one = self.module.add_metadata([ir.Constant(I32, 1)])
            instruction.set_metadata("nontemporal", one)

    def splat(self, x: Val, lanes: int) -> Val:
        """A vector with scalar ``x`` in every lane (a broadcast load when ``x`` is a load)."""
        ty = vec(x.type, lanes)
        one = self.b.insert_element(ir.Constant(ty, ir.Undefined), x.v, ir.Constant(I32, 0))
        zeros = ir.Constant(vec(I32, lanes), [0] * lanes)
        return Val(self, self.b.shuffle_vector(one, ir.Constant(ty, ir.Undefined), zeros))

    def shuffle(self, x: Val, y: Val, mask: Sequence[int]) -> Val:
        lanes = ir.Constant(vec(I32, len(mask)), list(mask))
        return Val(self, self.b.shuffle_vector(x.v, y.v, lanes))

    def lane(self, x: Val, index: int) -> Val:
        return Val(self, self.b.extract_element(x.v, ir.Constant(I32, index)))

    def prefetch(self, p: Val, *, write: bool = False, locality: int = 3) -> None:
        fn = self.declare("llvm.prefetch.p0", VOID, [PTR, I32, I32, I32])
        self.b.call(fn, [p.v] + [ir.Constant(I32, c) for c in (int(write), locality, 1)])

    # -- arithmetic through intrinsics -------------------------------------------------------
    def fma(self, x: Val, y: Val, z: Val) -> Val:
        """x·y + z, rounded once."""
        return self.intrinsic("fma", x, y, z)

    def intrinsic(self, name: str, *xs: Val) -> Val:
        """A same-type floating-point intrinsic such as ``fabs``, ``maxnum``, ``floor``."""
        ty = xs[0].type
        fn = self.declare(f"llvm.{name}.{_mangle(ty)}", ty, [ty] * len(xs))
        return Val(self, self.b.call(fn, [x.v for x in xs]))

    def reduce_add(self, x: Val) -> Val:
        """Sum of the lanes, pairwise."""
        assert isinstance(x.type, ir.VectorType)
        lanes = x.type.count
        while lanes > 1:
            half = lanes // 2
            low, high = range(half), range(half, lanes)
            x = self.shuffle(x, x, list(low)) + self.shuffle(x, x, list(high))
            lanes = half
        return self.lane(x, 0)

    # -- atomics -----------------------------------------------------------------------------
    def fetch_add(self, p: Val, n: int) -> Val:
        return Val(self, self.b.atomic_rmw("add", p.v, ir.Constant(I64, n), "seq_cst"))

    def exchange(self, p: Val, n: int) -> Val:
        return Val(self, self.b.atomic_rmw("xchg", p.v, ir.Constant(I64, n), "seq_cst"))

    def compare_exchange(self, p: Val, expected: int, new: int) -> Val:
        """True when ``*p`` was ``expected`` and is now ``new``."""
        pair = self.b.cmpxchg(
            p.v, ir.Constant(I64, expected), ir.Constant(I64, new), "seq_cst", "seq_cst"
        )
        return Val(self, self.b.extract_value(pair, 1))

    def load_atomic(self, p: Val) -> Val:
        return Val(self, self.b.load_atomic(p.v, "acquire", 8, typ=I64))

    # -- control flow ------------------------------------------------------------------------
    @contextmanager
    def loop(
        self, lo: Val | int, hi: Val | int, step: Val | int = 1, carry: Sequence[Val] = ()
    ) -> Iterator[Loop]:
        """``for i in range(lo, hi, step)`` with optional loop-carried values."""
        lo, hi, step = self.i64(lo), self.i64(hi), self.i64(step)
        before = self.b.block
        head, body, done = (self.fn.append_basic_block(n) for n in ("head", "body", "done"))
        self.b.branch(head)
        self.b.position_at_end(head)
        phi_i = self.b.phi(I64)
        phis = [self.b.phi(c.type) for c in carry]
        phi_i.add_incoming(lo.v, before)
        for phi, c in zip(phis, carry, strict=True):
            phi.add_incoming(c.v, before)
        self.b.cbranch(self.b.icmp_signed("<", phi_i, hi.v), body, done)
        self.b.position_at_end(body)
        handle = Loop(Val(self, phi_i), [Val(self, p) for p in phis])
        yield handle
        phi_i.add_incoming(self.b.add(phi_i, step.v), self.b.block)
        for phi, value in zip(phis, handle.following, strict=True):
            phi.add_incoming(value.v, self.b.block)
        self.b.branch(head)
        self.b.position_at_end(done)
        handle.results = [Val(self, p) for p in phis]

    @contextmanager
    def forever(self) -> Iterator[ir.Block]:
        """An endless loop; leave it with ``leave(block)`` on the yielded exit block."""
        body, done = self.fn.append_basic_block("again"), self.fn.append_basic_block("left")
        self.b.branch(body)
        self.b.position_at_end(body)
        yield done
        self.b.branch(body)
        self.b.position_at_end(done)

    @contextmanager
    def counted_forever(self) -> Iterator[tuple[Turn, ir.Block]]:
        """Like :meth:`forever`, with the number of the turn (restartable)."""
        turn = Turn(self)
        with self.forever() as done:
            yield turn, done
            turn.advance()

    def leave(self, block: ir.Block, cond: Val) -> None:
        """Jump to ``block`` when ``cond`` holds."""
        stay = self.fn.append_basic_block("stay")
        self.b.cbranch(cond.v, block, stay)
        self.b.position_at_end(stay)

    @contextmanager
    def when(self, cond: Val) -> Iterator[None]:
        with self.b.if_then(cond.v):
            yield

    @contextmanager
    def either(self, cond: Val) -> Iterator[tuple]:
        """``with f.either(c) as (then, otherwise): with then: …; with otherwise: …``"""
        with self.b.if_else(cond.v) as branches:
            yield branches

    def call(self, fn: Function, *args: Val | int) -> Val:
        return Val(self, self.b.call(fn.fn, [self.i64(a).v for a in args]))

    def pointer(self, x: Val) -> Val:
        """An integer address as a pointer."""
        return Val(self, self.b.inttoptr(x.v, PTR))

    def call_pointer(self, p: Val, returns: ir.Type, *args: Val) -> Val:
        """Call the function at integer address ``p``."""
        ty = ir.FunctionType(returns, [a.type for a in args])
        typed = self.b.inttoptr(p.v, ir.PointerType(ty))
        return Val(self, self.b.call(typed, [a.v for a in args]))

    def ret(self, value: Val | None = None) -> None:
        if value is None:
            self.b.ret_void()
        else:
            self.b.ret(value.v)

    def declare(self, name: str, returns: ir.Type, args: list[ir.Type]) -> ir.Function:
        known = self.module.globals.get(name)
        return known or ir.Function(self.module, ir.FunctionType(returns, args), name)  # type: ignore[return-value]


def _mangle(ty: ir.Type) -> str:
    names = {F16: "f16", F32: "f32", F64: "f64", I32: "i32", I64: "i64"}
    if isinstance(ty, ir.VectorType):
        return f"v{ty.count}{names[ty.element]}"
    return names[ty]
