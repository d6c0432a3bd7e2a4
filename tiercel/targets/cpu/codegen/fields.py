"""The parameter block and its records as generated code reads them, by name; see ``params.py``."""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from tiercel.targets.cpu.codegen import norms
from tiercel.targets.cpu.codegen.emit import Function
from tiercel.targets.cpu.codegen.values import F64, I64, PTR, Val
from tiercel.targets.cpu.params import OFFSET


@dataclass(frozen=True)
class Parts:
    """The functions that the driver calls, and the sizes they were built for."""

    macro: Function
    combine: Function
    stream: Function
    rows: Function
    columns: Function
    merge: Function
    load_tiles: Function
    load_panels: Function
    store_tile: Function
    element: ir.Type
    size: int
    mr: int
    nr: int
    chunk: int


class Fields:
    """Reads named fields of the parameter block: ``p.M``, ``p.address("a")``."""

    def __init__(self, f: Function, block: Val) -> None:
        self._f, self._block = f, block

    def __getattr__(self, name: str) -> Val:
        return self._f.load(self._block + OFFSET[name], I64, 8)

    def address(self, name: str) -> Val:
        return self._f.load(self._block + OFFSET[name], PTR, 8)

    def number(self, name: str) -> Val:
        return self._f.load(self._block + OFFSET[name], F64, 8)


class Record:
    """Record ``index`` of an array of terms or targets: named words, see ``params.py``."""

    def __init__(self, f: Function, array: Val, index: Val | int, names: tuple[str, ...]) -> None:
        self._f, self._names = f, names
        self._at = array + f.i64(index) * (8 * len(names))

    def _load(self, name: str, ty: ir.Type) -> Val:
        return self._f.load(self._at + 8 * self._names.index(name), ty, 8)

    def __getattr__(self, name: str) -> Val:
        return self._load(name, I64)

    def pointer(self, name: str) -> Val:
        return self._load(name, PTR)

    def number(self, name: str) -> Val:
        return self._load(name, F64)


class Pair:
    """Arguments of ``combine`` for first + coef · second, on the stack."""

    def __init__(self, f: Function, parts: Parts) -> None:
        self._f, self._parts = f, parts
        self.pointers, self.coefs = f.stack(PTR, 2), f.stack(parts.element, 2)

    def fill(self, first: Val, second: Val, coef: Val) -> None:
        f, size = self._f, self._parts.size
        f.store(first, self.pointers, 8)
        f.store(second, self.pointers + 8, 8)
        f.store(f.const(self._parts.element, 1.0), self.coefs, size)
        narrow = f.cast(coef, self._parts.element, "fptrunc") if size == 4 else coef
        f.store(narrow, self.coefs + size, size)


def round_up(f: Function, x: Val, multiple: Val | int) -> Val:
    """The next multiple of ``multiple`` from x on."""
    return f.ceil_div(x, multiple) * multiple


def sub_block(f: Function, extent: Val, parts: Val, multiple: int) -> Val:
    """Size of one of ``parts`` equal sub-blocks of ``extent``, in whole register tiles."""
    return round_up(f, f.ceil_div(extent, parts), multiple)


def table(f: Function, p: Fields, private: Val, name: str) -> Val:
    """Address of the pointer table of operand ``name`` made by ``tables``."""
    at = private + p.at_tables
    for before in "abc"[: "abc".index(name)]:
        at = at + f.load(p.address(f"{before}_start") + p.products * 8, I64, 8) * 8
    return at


def sum_range(f: Function, p: Fields, name: str, r: Val) -> tuple[Val, Val]:
    """First term of operand ``name`` in product r, and how many there are."""
    start = p.address(f"{name}_start") + r * 8
    first = f.load(start, I64, 8)
    return first, f.load(start + 8, I64, 8) - first


def packed_panel(p: Fields, parts: Parts, jc: Val, pc: Val, r: Val, panel: Val) -> Val:
    """Address of a packed panel of B. Steps of jc share one buffer unless all of B is packed."""
    index = (pc * p.products + r) * p.panels + panel
    step = jc * p.packed_step
    return p.address("packed_b") + step + index * (p.k_pad * (parts.nr * parts.size))


def reset_stats(f: Function, stats: Val, parts: Parts) -> None:
    """Set statistics (``norms.py``) to those of nothing."""
    huge = {4: 3.0e38, 8: 1.0e308}[parts.size]
    for index, value in ((norms.LEAST, huge), (norms.MOST, 0.0), (norms.TOTAL, 0.0)):
        f.store(f.const(parts.element, value), stats + index * parts.size, parts.size)
