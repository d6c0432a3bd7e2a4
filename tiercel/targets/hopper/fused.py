"""Accumulator program → statements of the fused kernel, and the planes that it reads.

bfloat16 operands are combined into float16 planes, which have three more bits at the same tensor
rate. One instruction multiplies one type, so a plain block that meets a combined one is needed as
a float16 copy too, while a product of two plain blocks reads both operands in place, as bfloat16.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from tiercel.errors import TiercelValueError
from tiercel.lower.accumulator import AccumulatorProgram, Load, Multiply, Save, Store
from tiercel.lower.accumulator.program import Plane
from tiercel.targets.hopper.source import NAMES, KernelProgram

PLANE = "float16"  # element type of written planes


@dataclass(frozen=True)
class KernelPlane:
    """A plane as the kernel reads it: ``written`` by a combination kernel, or in place."""

    plane: Plane
    written: bool


@dataclass(frozen=True)
class Fused:
    """A program lowered for an operand type: statements, and the planes in the kernel's order.

    ``inside``: the kernel combines A itself, while it multiplies.
    """

    program: AccumulatorProgram
    operand: str
    kernel: KernelProgram
    a_planes: tuple[KernelPlane, ...]
    b_planes: tuple[KernelPlane, ...]
    inside: bool


@dataclass
class _Writer:
    """Statements so far, and in which units the accumulator is: plain, or of scaled planes."""

    program: AccumulatorProgram
    operand: str
    inside: bool
    a_planes: list[KernelPlane] = field(default_factory=list)
    b_planes: list[KernelPlane] = field(default_factory=list)
    produce: list[str] = field(default_factory=list)
    consume: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    awaited: bool = False  # a product has waited for the planes of A already
    busy: bool = False  # products are still in flight
    scaled: bool = False  # the accumulator holds plane_scale times its value
    slot_scaled: dict[int, bool] = field(default_factory=dict)

    def _drain(self) -> None:
        if self.busy:
            self.consume.append("tile.drain(acc);")
            self.busy = False

    def multiply(self, step: Multiply) -> None:
        a, b = self.program.a_planes[step.a], self.program.b_planes[step.b]
        in_place = a.plain and b.plain
        kind = self.operand if in_place else PLANE
        written = not in_place and (self.operand != PLANE)
        a_index = _index(self.a_planes, KernelPlane(a, written or not a.plain))
        b_index = _index(self.b_planes, KernelPlane(b, written or not b.plain))
        if kind not in self.kinds:
            self.kinds.append(kind)
        if not step.clear:
            self._rescale(not in_place)
        self.scaled = not in_place
        wait = ""
        if self.inside and self.a_planes[a_index].written and not self.awaited:
            wait, self.awaited = "<Planes::awaited>", True
        self.produce.append(f"load.multiply{wait}(p.a[{a_index}], p.b[{b_index}]);")
        start = "zero" if step.clear else "sum"
        self.consume.append(f"tile.multiply<{NAMES[kind]}, From::{start}>(acc);")
        self.busy = True

    def _rescale(self, scaled: bool) -> None:
        if self.scaled != scaled:
            self._drain()
            factor = "p.plane_scale" if scaled else "p.plane_unscale"
            self.consume.append(f"rescale<Config>(acc, {factor});")
            self.scaled = scaled

    def save(self, step: Save) -> None:
        self._drain()
        self.slot_scaled[step.slot] = self.scaled
        if step.kind == "register":
            self.consume.append(f"save(r{step.slot}, acc);")
        else:
            place = step.slot - self.program.registers
            self.consume.append(f"s{place} = save_scratch(tile, {place}, acc);")

    def load(self, step: Load) -> None:
        self._drain()
        if step.clear:
            self.scaled = self.slot_scaled[step.slot]
        start = "zero" if step.clear else "sum"
        factor = f"{step.scale!r}f"
        if self.slot_scaled[step.slot] != self.scaled:
            factor += " * p.plane_scale" if self.scaled else " * p.plane_unscale"
        place = step.slot - self.program.registers
        if place < 0:
            self.consume.append(f"load<From::{start}>(acc, r{step.slot}, {factor});")
        else:
            self.produce.append(f"load.load_scratch({place});")
            self.consume.append(f"load_scratch<From::{start}>(tile, acc, {factor} * s{place});")

    def store(self, step: Store) -> None:
        self._drain()
        row, column = divmod(step.c, self.program.n)
        factor = f"{step.scale!r}f" + (" * p.plane_unscale" if self.scaled else "")
        self.consume.append(
            f"store(tile, acc, p, p.d[{step.c}], {row} * p.block_rows, "
            f"{column} * p.block_columns, {factor});"
        )


@lru_cache(maxsize=256)
def lower(program: AccumulatorProgram, operand: str, inside: bool = False) -> Fused:
    r"""Statements and planes of ``program`` for operands of type ``operand``.

    >>> from tiercel.lower.accumulator import classical
    >>> print(*lower(classical(), "bfloat16").kernel.consume, sep="\n")
    tile.multiply<bf16, From::zero>(acc);
    tile.drain(acc);
    store(tile, acc, p, p.d[0], 0 * p.block_rows, 0 * p.block_columns, 1.0f);
    """
    if program.registers > 1:
        raise TiercelValueError(
            f"program {program.name} keeps {program.registers} sums in registers; one fits beside "
            "a 128x256 accumulator. Search it with one register slot"
        )
    writer = _Writer(program, operand, inside)
    for step in program.steps:
        match step:
            case Multiply():
                writer.multiply(step)
            case Save():
                writer.save(step)
            case Load():
                writer.load(step)
            case Store():
                writer.store(step)
    slots = [f"Packed<Config> r{i};" for i in range(program.registers)]
    slots += [f"float s{i};" for i in range(program.scratch_slots)]
    kernel = KernelProgram(
        f"{program.name}, {program.multiplies} products",
        len(writer.a_planes), len(writer.b_planes), program.m * program.n,
        program.scratch_slots, tuple(writer.kinds), tuple(writer.produce),
        (*slots, *writer.consume),
        sums_of(writer.a_planes) if inside else (),
        program.m * program.k if inside else 1,
    )  # fmt: skip
    return Fused(program, operand, kernel, tuple(writer.a_planes), tuple(writer.b_planes), inside)


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


def _index(planes: list[KernelPlane], plane: KernelPlane) -> int:
    if plane not in planes:
        planes.append(plane)
    return planes.index(plane)
