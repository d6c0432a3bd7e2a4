"""The accumulator program: what one thread block does with its accumulator, step by step.

A thread block owns one tile position of the (M/m) × (N/n) output grid and a single accumulator. It
runs every product of a scheme there: partial sums form because the accumulator is *not cleared*
between products, are saved to a slot when a later output needs them again, and each block of C is
written once, straight from the accumulator. No product ever reaches memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from tiercel.lower.program import Term, factor_text, sum_text

Kind = Literal["register", "scratch"]


@dataclass(frozen=True)
class Plane:
    """An operand of products: a sum of blocks, given as (block number, coefficient)."""

    terms: tuple[Term, ...]

    @property
    def plain(self) -> bool:
        """One block, unscaled: read in place from the operand, never written."""
        return len(self.terms) == 1 and self.terms[0][1] == 1.0


@dataclass(frozen=True)
class Multiply:
    """acc (=|+=) A plane ``a`` · B plane ``b`` over the block's depth K / k; = when ``clear``."""

    a: int
    b: int
    clear: bool


@dataclass(frozen=True)
class Save:
    """slot = acc. The accumulator keeps its value."""

    slot: int
    kind: Kind


@dataclass(frozen=True)
class Load:
    """acc (=|+=) ``scale`` · slot; = when ``clear``. A negative scale takes a partial sum back."""

    slot: int
    scale: float
    clear: bool


@dataclass(frozen=True)
class Store:
    """C block ``c`` = ``scale`` · acc, then the epilogue. The accumulator keeps its value."""

    c: int
    scale: float


Step = Multiply | Save | Load | Store


@dataclass(frozen=True)
class AccumulatorProgram:
    """Steps over the planes of A and B that make every block of C, each stored once.

    Block numbers are row-major in the scheme's grid: A ``i·k + l``, B ``l·n + j``, C ``i·n + j``.
    Slots ``0 … registers − 1`` are registers of the thread block, those after them scratch memory;
    a slot is used again once its value is dead.

    >>> print(classical())
    classical: 1 multiplies, 0 saves, 0 loads; 0 register and 0 scratch slots; grid 1×1×1
      acc  = (A0) · (B0)
      C0 = acc
    """

    name: str
    m: int
    k: int
    n: int
    a_planes: tuple[Plane, ...]
    b_planes: tuple[Plane, ...]
    steps: tuple[Step, ...]

    def count(self, kind: type[Step]) -> int:
        """Number of steps of one type."""
        return sum(isinstance(step, kind) for step in self.steps)

    @property
    def multiplies(self) -> int:
        return self.count(Multiply)

    @property
    def saves(self) -> int:
        return self.count(Save)

    @property
    def loads(self) -> int:
        return self.count(Load)

    @cached_property
    def slot_kinds(self) -> dict[int, Kind]:
        """Where each slot lives, by slot number."""
        return {step.slot: step.kind for step in self.steps if isinstance(step, Save)}

    @property
    def registers(self) -> int:
        """Register slots that are live at once."""
        return sum(kind == "register" for kind in self.slot_kinds.values())

    @property
    def scratch_slots(self) -> int:
        """Scratch slots, each the size of one tile per thread block."""
        return sum(kind == "scratch" for kind in self.slot_kinds.values())

    def transfers(self, kind: Kind) -> int:
        """Saves and loads of slots of one kind."""
        return sum(
            self.slot_kinds[step.slot] == kind
            for step in self.steps
            if isinstance(step, (Save, Load))
        )

    def written_planes(self, operand: str) -> int:
        """Planes of operand ``"a"`` or ``"b"`` that a combination kernel must write."""
        planes = {"a": self.a_planes, "b": self.b_planes}[operand]
        return sum(not plane.plain for plane in planes)

    @property
    def peak_slots(self) -> int:
        """Most saved values that a later step still loads, at any moment."""
        return max((len(live) for _, live in self.live()), default=0)

    def live(self) -> Iterator[tuple[Step, frozenset[int]]]:
        """Each step with the slots whose values are needed after it."""
        after: set[int] = set()
        reverse = []
        for step in reversed(self.steps):
            reverse.append((step, frozenset(after)))
            if isinstance(step, Load):
                after.add(step.slot)
            elif isinstance(step, Save):
                after.discard(step.slot)
        yield from reversed(reverse)

    def __str__(self) -> str:
        head = (
            f"{self.name}: {self.multiplies} multiplies, {self.saves} saves, {self.loads} loads; "
            f"{self.registers} register and {self.scratch_slots} scratch slots; "
            f"grid {self.m}×{self.k}×{self.n}"
        )
        return "\n".join([head, *("  " + self._spell(step) for step in self.steps)])

    def _spell(self, step: Step) -> str:
        match step:
            case Multiply(a, b, clear):
                left = sum_text("A", self.a_planes[a].terms)
                right = sum_text("B", self.b_planes[b].terms)
                return f"acc {_assign(clear)} ({left}) · ({right})"
            case Save(slot, kind):
                return f"{kind[0]}{slot} = acc"
            case Load(slot, scale, clear):
                sign = "-=" if scale < 0 and not clear else _assign(clear)
                size = abs(scale) if sign == "-=" else scale
                return f"acc {sign} {factor_text(size)}{self.slot_kinds[slot][0]}{slot}"
            case Store(c, scale):
                return f"C{c} = {factor_text(scale)}acc"


def classical() -> AccumulatorProgram:
    """The plain product as a program: one product, one store."""
    plain = (Plane(((0, 1.0),)),)
    return AccumulatorProgram(
        "classical", 1, 1, 1, plain, plain, (Multiply(0, 0, clear=True), Store(0, 1.0))
    )


def _assign(clear: bool) -> str:
    return " =" if clear else "+="
