"""Accumulator program → the tables that the fused kernel walks, and the planes that it reads.

bfloat16 operands are combined into float16 planes, which have three more bits at the same tensor
rate. One instruction multiplies one type, so a plain block that meets a combined one is needed as
a float16 copy too, while a product of two plain blocks reads both operands in place, as bfloat16.
Planes of float16 and float32 operands are of their own type.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from tiercel.errors import TiercelValueError
from tiercel.lower.accumulator import AccumulatorProgram, Load, Multiply, Save, Step, Store
from tiercel.lower.accumulator.program import Plane
from tiercel.targets.hopper.config import MOST_SLOTS

#: Element type of written planes, by the operands'. float32 is multiplied as TF32.
PLANES = {"bfloat16": "float16", "float16": "float16", "float32": "float32"}


@dataclass(frozen=True)
class KernelPlane:
    """A plane as the kernel reads it: ``written`` by a combination kernel, or in place."""

    plane: Plane
    written: bool


@dataclass(frozen=True)
class Fused:
    """A program lowered for an operand type; planes in the kernel's order.

    ``fetches``, ``steps``: lines of the tables in ``kernels/steps.cuh``. The first
    ``head_fetches`` and ``head_steps`` of them, the head, read no written plane and leave nothing
    behind but the register slot: heads of other tiles may run in between. ``left``, ``right``: the
    kernel combines that operand itself, while it multiplies.
    """

    program: AccumulatorProgram
    operand: str
    fetches: tuple[str, ...]
    steps: tuple[str, ...]
    head_fetches: int
    head_steps: int
    a_planes: tuple[KernelPlane, ...]
    b_planes: tuple[KernelPlane, ...]
    left: bool
    right: bool

    @property
    def kinds(self) -> tuple[str, ...]:
        """Element types that products read."""
        plane = PLANES[self.operand]
        in_place = any("in_place" in step for step in self.steps)
        return (self.operand, plane) if in_place else (plane,)


@dataclass
class _Writer:
    """Tables so far, and in which units the accumulator is: plain, or of scaled planes."""

    program: AccumulatorProgram
    operand: str
    awaits: bool
    a_planes: list[KernelPlane] = field(default_factory=list)
    b_planes: list[KernelPlane] = field(default_factory=list)
    fetches: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    head: tuple[int, int] | None = None
    joined: int = 0  # products of the last step, if that is one: the next may go on from it
    scaled: bool = False  # the accumulator holds plane_scale times its value
    slot_scaled: dict[int, bool] = field(default_factory=dict)
    fresh: set[int] = field(default_factory=set)  # scratch slots saved and not yet fetched

    def multiply(self, step: Multiply, live: frozenset[int]) -> None:
        a, b = self.program.a_planes[step.a], self.program.b_planes[step.b]
        in_place = a.plain and b.plain
        mixed = self.operand != PLANES[self.operand]
        written = not in_place and mixed
        left = KernelPlane(a, written or not a.plain)
        right = KernelPlane(b, written or not b.plain)
        pair = f"({_index(self.a_planes, left)}, {_index(self.b_planes, right)})"
        first = (left.written or right.written) and self.head is None
        if first:
            alone = step.clear and all(self.program.slot_kinds[x] == "register" for x in live)
            self.head = (len(self.fetches), len(self.steps)) if alone else (0, 0)
            self.joined = 0
        if not step.clear:
            self._rescale(not in_place)
        self.scaled = not in_place
        self.fetches.append(f"fetch{'_awaited' if first and self.awaits else ''}{pair}")
        name = "multiply_in_place" if in_place and mixed else "multiply"
        if self.joined and not step.clear and self.steps[-1].startswith(f"{name}("):
            self.joined += 1
            start = self.steps.pop().split("(")[1].split(",")[0]
            self.steps.append(f"{name}({start}, {self.joined})")
            return
        self.joined = 1
        self.steps.append(f"{name}({_from(step.clear)}, 1)")

    def _rescale(self, scaled: bool) -> None:
        if self.scaled != scaled:
            self._add(f"rescale(Unit::{'scale' if scaled else 'unscale'})")
            self.scaled = scaled

    def save(self, step: Save) -> None:
        self.slot_scaled[step.slot] = self.scaled
        if step.kind == "register":
            self._add("save()")
        else:
            place = step.slot - self.program.registers
            self.fresh.add(place)
            self._add(f"save_scratch({place})")

    def load(self, step: Load) -> None:
        if step.clear:
            self.scaled = self.slot_scaled[step.slot]
        unit = ""
        if self.slot_scaled[step.slot] != self.scaled:
            unit = f", Unit::{'scale' if self.scaled else 'unscale'}"
        factor = f"{step.scale!r}f{unit}"
        place = step.slot - self.program.registers
        if place < 0:
            self._add(f"load({_from(step.clear)}, {factor})")
            return
        self.fetches.append(f"fetch_{'saved' if place in self.fresh else 'again'}({place})")
        self.fresh.discard(place)
        self._add(f"load_scratch({_from(step.clear)}, {place}, {factor})")

    def store(self, step: Store) -> None:
        unit = ", Unit::unscale" if self.scaled else ""
        self._add(f"store({step.c}, {step.scale!r}f{unit})")

    def _add(self, line: str) -> None:
        self.joined = 0
        self.steps.append(line)


@lru_cache(maxsize=256)
def lower(
    program: AccumulatorProgram, operand: str, left: bool = False, right: bool = False
) -> Fused:
    r"""Tables and planes of ``program`` for operands of type ``operand``.

    >>> from tiercel.lower.accumulator import classical
    >>> print(*lower(classical(), "bfloat16").steps, sep="\n")
    multiply_in_place(From::zero, 1)
    store(0, 1.0f)
    """
    if program.registers > 1:
        raise TiercelValueError(
            f"program {program.name} keeps {program.registers} sums in registers; one fits beside "
            "a 128x256 accumulator. Search it with one register slot"
        )
    if program.scratch_slots > MOST_SLOTS:
        raise TiercelValueError(
            f"program {program.name} saves {program.scratch_slots} sums at a time in L2; the "
            f"kernel has barriers for {MOST_SLOTS}. Take a scheme with fewer products"
        )
    writer = _Writer(program, operand, left or right)
    live: frozenset[int] = frozenset()
    for step, after in program.live():
        _write(writer, step, live)
        live = after
    return Fused(
        program, operand, tuple(writer.fetches), tuple(writer.steps), *(writer.head or (0, 0)),
        tuple(writer.a_planes), tuple(writer.b_planes), left, right,
    )  # fmt: skip


def _write(writer: _Writer, step: Step, live: frozenset[int]) -> None:
    match step:
        case Multiply():
            writer.multiply(step, live)
        case Save():
            writer.save(step)
        case Load():
            writer.load(step)
        case Store():
            writer.store(step)


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


def _index(planes: list[KernelPlane], plane: KernelPlane) -> int:
    if plane not in planes:
        planes.append(plane)
    return planes.index(plane)
