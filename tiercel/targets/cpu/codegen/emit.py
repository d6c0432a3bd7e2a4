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

from llvmlite import ir

from tiercel.targets.cpu.codegen.loops import Loop, Turn
from tiercel.targets.cpu.codegen.values import (
    F16,
    F32,
    F64,
    I32,
    I64,
    PTR,
    VOID,
    Val,
    splat_const,
    vec,
)


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
