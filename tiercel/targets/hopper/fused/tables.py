"""Accumulator program → the tables that the fused kernel walks, and the planes that it reads.

bfloat16 operands are combined into float16 planes, which have three more bits at the same tensor
rate. One instruction multiplies one type, so a plain block that meets a combined one is needed as
a float16 copy too, while a product of two plain blocks reads both operands in place, as bfloat16.
Planes of float16 and float32 operands are of their own type. So are those of float8 ones (e4m3),
which are scaled by powers of two instead: sums of numbers up to 448 would not fit. A plain block
that meets a scaled plane is copied as well, scaled.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache

from tiercel.lower.accumulator import AccumulatorProgram, Load, Multiply, Save, Store
from tiercel.lower.accumulator.program import Plane
from tiercel.targets.hopper.fused.drains import Drain, drains

#: Element type of written planes, by the operands'. float32 is multiplied as TF32.
PLANES = {
    "bfloat16": "float16", "float16": "float16", "float32": "float32",
    "float8_e4m3fn": "float8_e4m3fn",
}  # fmt: skip

#: Operands whose written planes are of another type, or scaled.
MIXED = ("bfloat16", "float8_e4m3fn")

#: Parts that a product may be cut into, so that a sum can be loaded after each.
MOST_PARTS = 8


@dataclass(frozen=True)
class KernelPlane:
    """A plane as the kernel reads it: ``written`` by a combination kernel, or in place.

    ``early``: written before the product also where it combines the others itself.
    """

    plane: Plane
    written: bool
    early: bool = False


@dataclass(frozen=True)
class Fused:
    """A program lowered for an operand type; planes in the kernel's order.

    ``products``, ``steps``: lines of the tables in ``kernels/steps.cuh``. The first
    ``head_products`` and ``head_steps`` of them, the head, read no written plane and leave nothing
    behind but saved sums: heads of other tiles may run in between. ``left``, ``right``: the kernel
    combines that operand itself, while it multiplies, but for early planes. ``judged``: it also
    measures what it combines, for the guard; ``gained``: multiplies it by a gain before.
    ``products_again``, ``steps_again``: of the classical
    product, by which the kernel begins anew where data are not for the scheme.
    """

    program: AccumulatorProgram
    operand: str
    products: tuple[str, ...]
    steps: tuple[str, ...]
    head_products: int
    head_steps: int
    products_again: tuple[str, ...]
    steps_again: tuple[str, ...]
    a_planes: tuple[KernelPlane, ...]
    b_planes: tuple[KernelPlane, ...]
    left: bool
    right: bool
    judged: bool
    gained: bool = False

    @property
    def slots(self) -> int:
        """Saved sums that a tile has room for."""
        return len(self.program.slot_kinds)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Element types that products read."""
        plane = PLANES[self.operand]
        return (self.operand, plane) if self.in_place and plane != self.operand else (plane,)

    @property
    def in_place(self) -> bool:
        """Whether some products read plain blocks, and others planes of another type or unit."""
        return any("in_place" in step for step in (*self.steps, *self.steps_again))


@dataclass(frozen=True)
class Run:
    """Products that one instruction multiplies, one after the other."""

    name: str
    clear: bool
    products: int = 1

    def line(self, fetched: int | None = None, part: int = 0, parts: int = 1) -> str:
        """The line of the consumers' table for one of several parts."""
        rest = "" if fetched is None else f", {fetched}"
        if parts > 1:
            rest = f"{rest or ', no_slot'}, Part{{{part}, {parts}}}"
        return f"{self.name}({_from(self.clear)}, {self.products}{rest})"


@dataclass
class _Writer:
    """Tables so far, and in which units the accumulator is: plain, or of scaled planes."""

    program: AccumulatorProgram
    operand: str
    awaits: bool
    parts: int
    early: int
    a_planes: list[KernelPlane] = field(default_factory=list)
    b_planes: list[KernelPlane] = field(default_factory=list)
    products: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    head: tuple[int, int] | None = None
    scaled: bool = False  # the accumulator holds plane_scale times its value; slots never do

    def drain(self, drain: Drain) -> None:
        run: Run | None = None
        for step in drain.products:
            name, clear = self.product(step, run is not None), step.clear
            if run is not None and name == run.name:
                run = replace(run, products=run.products + 1)
                continue
            if run is not None:
                self.steps.append(run.line())
            self._rescale(name, clear)
            run = Run(name, clear)
        assert run is not None, "a drain has products"
        # A load that is hidden in the middle of the products leaves nothing to do at their end.
        inner = drain.parts[: min(drain.first, self.parts - 1)]
        for i, load in enumerate(inner):
            self.steps.append(run.line(load.slot, i, len(inner) + 1))
            self.load(load, fetched=True)
            run = replace(run, clear=False)
        last = drain.parts[len(inner) : len(inner) + 1]
        self.steps.append(run.line(last[0].slot if last else None, len(inner), len(inner) + 1))
        for step in drain.after[len(inner) :]:
            match step:
                case Save(slot):
                    name = "save" if step is drain.leaving else "save_now"
                    self.steps.append(f"{name}({slot}{self._unscale()})")
                case Load():
                    self.load(step, fetched=any(step is x for x in last))
                case Store(c, scale):
                    name = "store" if step is drain.leaving else "store_now"
                    self.steps.append(f"{name}({c}, {scale!r}f{self._unscale()})")

    def product(self, step: Multiply, joins: bool) -> str:
        """A line of the producer's table; the instruction that multiplies it."""
        a, b = self.program.a_planes[step.a], self.program.b_planes[step.b]
        in_place = a.plain and b.plain
        mixed = self.operand in MIXED
        copied = mixed and not in_place
        early = len(self.products) < self.early
        left = self.known(self.a_planes, KernelPlane(a, copied or not a.plain, early))
        right = self.known(self.b_planes, KernelPlane(b, copied or not b.plain, early))
        first = self.head is None and any(x.written and not x.early for x in (left, right))
        if first:
            whole = step.clear and not joins  # nothing is in the accumulator
            self.head = (len(self.products), len(self.steps)) if whole else (0, 0)
        name = f"product{'_awaited' if first and self.awaits else ''}"
        pair = self.a_planes.index(left), self.b_planes.index(right)
        self.products.append(f"{name}{pair}")
        return "multiply_in_place" if in_place and mixed else "multiply"

    def classical(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Tables of the classical product, which reads the blocks in place."""
        m, k, n = self.program.m, self.program.k, self.program.n

        def place(planes: list[KernelPlane], block: int) -> int:
            return planes.index(self.known(planes, KernelPlane(Plane(((block, 1.0),)), False)))

        products = tuple(
            f"product{place(self.a_planes, i * k + x), place(self.b_planes, x * n + j)}"
            for i in range(m)
            for j in range(n)
            for x in range(k)
        )
        name = "multiply_in_place" if self.operand in MIXED else "multiply"
        steps = (
            step for c in range(m * n) for step in (f"{name}(From::zero, {k})", f"store({c}, 1.0f)")
        )
        return products, tuple(steps)

    def known(self, planes: list[KernelPlane], wanted: KernelPlane) -> KernelPlane:
        """The plane as an earlier product already has it, else added as it is."""
        for plane in planes:
            if (plane.plane, plane.written) == (wanted.plane, wanted.written):
                return plane
        planes.append(wanted)
        return wanted

    def _rescale(self, name: str, clear: bool) -> None:
        scaled = name == "multiply" and self.operand in MIXED
        if not clear and scaled != self.scaled:
            self.steps.append(f"rescale(Unit::{'scale' if scaled else 'unscale'})")
        self.scaled = scaled

    def _unscale(self) -> str:
        return ", Unit::unscale" if self.scaled else ""

    def load(self, step: Load, fetched: bool) -> None:
        self.scaled &= not step.clear
        unit = ", Unit::scale" if self.scaled else ""
        start, factor = _from(step.clear), f"{step.scale!r}f{unit}"
        if fetched:
            self.steps.append(f"load({start}, {factor})")
        else:
            self.steps.append(f"fetch_and_load({start}, {step.slot}, {factor})")


@lru_cache(maxsize=256)
def lower(
    program: AccumulatorProgram,
    operand: str,
    left: bool = False,
    right: bool = False,
    parts: int = MOST_PARTS,
    early: int = 0,
    judged: bool = False,
) -> Fused:
    r"""Tables and planes of ``program`` for operands of type ``operand``.

    ``early``: products whose planes are early.

    >>> from tiercel.lower.accumulator import classical
    >>> made = lower(classical(), "bfloat16")
    >>> print(*made.steps, sep="\n")
    multiply_in_place(From::zero, 1)
    store(0, 1.0f)
    >>> made.steps_again == made.steps, made.products_again
    (True, ('product(0, 0)',))
    """
    writer = _Writer(program, operand, left or right, parts, early)
    for drain in drains(program.steps):
        writer.drain(drain)
    again = writer.classical()
    return Fused(
        program, operand, tuple(writer.products), tuple(writer.steps), *(writer.head or (0, 0)),
        *again, tuple(writer.a_planes), tuple(writer.b_planes), left, right, judged,
    )  # fmt: skip


def early_and_late(
    planes: tuple[KernelPlane, ...],
) -> tuple[tuple[KernelPlane, ...], tuple[KernelPlane, ...]]:
    """Written planes by when they are written, in the order of their places in memory."""
    written = [x for x in planes if x.written]
    return tuple(x for x in written if x.early), tuple(x for x in written if not x.early)


def sums_of(planes: Iterable[KernelPlane]) -> tuple[str, ...]:
    """CUDA expressions of the written planes.

    >>> sums_of([KernelPlane(Plane(((0, 1.0), (3, -2.0))), written=True)])
    ('block[0] - 2.0f * block[3]',)
    """
    return tuple(_sum(plane.plane.terms) for plane in planes if plane.written)


def _sum(terms: tuple[tuple[int, float], ...]) -> str:
    text = ""
    for block, coef in terms:
        factor = "" if abs(coef) == 1 else f"{abs(coef)!r}f * "
        sign = ("- " if coef < 0 else "+ ") if text else ("-" if coef < 0 else "")
        text += f"{' ' if text else ''}{sign}{factor}block[{block}]"
    return text


def _from(clear: bool) -> str:
    return f"From::{'zero' if clear else 'sum'}"
