"""Write-back: finished tiles from scratch into the user's C, through the epilogue, once.

Every element of C is computed completely in scratch (over all products and all of K) and then
passes here: + what C already holds (when there are several steps), + bias, activation, conversion
to the output dtype, store with any strides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from llvmlite import ir

from tiercel.targets.cpu.codegen import activations
from tiercel.targets.cpu.codegen.emit import Function
from tiercel.targets.cpu.codegen.load import Shape, transpose
from tiercel.targets.cpu.codegen.storage import Storage
from tiercel.targets.cpu.codegen.values import F64, I64, PTR, Val, vec


class _Place(NamedTuple):
    """Where a tile's vectors go: address of vector v of row i, and what is stored there of x."""

    at: Callable[[Val, int], Val]
    converted: Callable[[Val], Val]


@dataclass(frozen=True)
class _Tile:
    """A finished tile on its way to C; fields as :func:`emit` has them."""

    f: Function
    shape: Shape
    activation: str | None
    tile: Val
    rows: Val
    factor: Val  # coef in every lane
    bias: Val
    activate: Val

    @property
    def step(self) -> int:
        """Bytes of a vector."""
        return self.shape.lanes * self.shape.size

    @property
    def row_bytes(self) -> int:
        return self.shape.nr * self.shape.size

    @property
    def vector(self) -> ir.Type:
        return vec(self.shape.element, self.shape.lanes)

    def write(self, to: _Place, old: Callable[[Val, int], Val | None]) -> None:
        """All rows; ``old``: what is there of vector v of row i, to be added to."""
        f, row_bytes = self.f, self.row_bytes
        with f.loop(0, self.rows) as i:
            # The next tile of this panel, which the next turn over the panels reads: a third less
            # time for write-back. Prefetching C as well gains nothing.
            for line in range(0, row_bytes, 64):
                f.prefetch(self.tile + (i.i + self.shape.mr) * row_bytes + line)
            for v in range(self.shape.nr // self.shape.lanes):
                x = f.load(self.tile + i.i * row_bytes + v * self.step, self.vector, self.step)
                self._finish(x, to, i.i, v, old(i.i, v))

    def _finish(self, x: Val, to: _Place, i: Val, v: int, old: Val | None) -> None:
        f = self.f
        x = x * self.factor if old is None else f.fma(x, self.factor, old)
        at = to.at(i, v)
        with f.either(self.bias.ne(0)) as (biased, unbiased):
            with biased:
                column = f.load(f.pointer(self.bias) + v * self.step, self.vector, self.shape.size)
                self._store(x + column, to, at)
            with unbiased:
                self._store(x, to, at)

    def _store(self, x: Val, to: _Place, at: Val) -> None:
        f = self.f
        if self.activation is None:
            f.store(to.converted(x), at)
            return
        with f.either(self.activate.ne(0)) as (now, later):
            with now:
                f.store(to.converted(activations.emit(f, self.activation, x)), at)
            with later:
                f.store(to.converted(x), at)


def emit(module: ir.Module, storage: Storage, shape: Shape, activation: str | None) -> None:
    """Emit ``store_tile(tile, c, rs, cs, rows, cols, coef, accumulate, bias, activate)``.

    Strides of ``c`` in bytes. ``coef`` (float64) times the tile goes to C, or (``accumulate``) is
    added to it. ``bias``: address of nr elements of the compute dtype, or 0. ``activate``: the
    activation applies (this is the last time that C is touched).
    """
    args = {"tile": PTR, "c": PTR} | dict.fromkeys(["rs", "cs", "rows", "cols"], I64)
    args |= {"coef": F64, "accumulate": I64, "bias": I64, "activate": I64}
    f = Function(module, "store_tile", args, export=True)
    tile, c, rs, cs, rows, cols, coef, accumulate, bias, activate = f.args()
    element, size = shape.element, shape.size
    factor = f.splat(coef if size == 8 else f.cast(coef, element, "fptrunc"), shape.lanes)
    edge = f.stack(element, shape.mr * shape.nr)  # for tiles at the edge of C, or of a strided C
    work = _Tile(f, shape, activation, tile, rows, factor, bias, activate)
    with f.either(cs.eq(storage.size) & cols.eq(shape.nr)) as (whole, part):
        with whole:
            _write_whole(work, storage, c, rs, accumulate)
        with part:
            _write_part(work, storage, edge, c, rs, cs, cols, accumulate)
    f.ret()


def _write_whole(work: _Tile, storage: Storage, c: Val, rs: Val, accumulate: Val) -> None:
    """Whole rows of vectors, to a C whose rows are contiguous."""
    f, shape = work.f, work.shape
    memory = vec(storage.memory, shape.lanes)
    to = _Place(
        lambda i, v: c + i * rs + v * shape.lanes * storage.size, lambda x: storage.narrow(f, x)
    )
    with f.either(accumulate.ne(0)) as (add, overwrite):
        with add:
            work.write(
                to, lambda i, v: storage.widen(f, f.load(to.at(i, v), memory), shape.element)
            )
        with overwrite:
            work.write(to, lambda i, v: None)


def _write_part(
    work: _Tile, storage: Storage, edge: Val, c: Val, rs: Val, cs: Val, cols: Val, accumulate: Val
) -> None:
    """By way of ``edge``, a whole tile of the compute dtype."""
    f, shape, rows, row_bytes, step = work.f, work.shape, work.rows, work.row_bytes, work.step
    element, size = shape.element, shape.size
    nothing = f.const(work.vector, 0.0)
    for at in range(0, shape.mr * row_bytes, step):
        f.store(nothing, edge + at, step)
    with f.when(accumulate.ne(0)), f.loop(0, rows) as i, f.loop(0, cols) as j:
        old = storage.widen(f, f.load(c + i.i * rs + j.i * cs, storage.memory), element)
        f.store(old, edge + i.i * row_bytes + j.i * size, size)
    to = _Place(lambda i, v: edge + i * row_bytes + v * step, lambda x: x)
    work.write(to, lambda i, v: f.load(to.at(i, v), work.vector, step))
    down = rs.eq(storage.size) & rows.eq(shape.mr) & cols.eq(shape.nr)
    with f.either(down & int(storage.size == size)) as (turned, otherwise):
        with turned:
            _store_columns(f, edge, c, cs, shape)
        with otherwise, f.loop(0, rows) as i, f.loop(0, cols) as j:
            x = f.load(edge + i.i * row_bytes + j.i * size, element, size)
            f.store(storage.narrow(f, x), c + i.i * rs + j.i * cs)


def _store_columns(f: Function, tile: Val, c: Val, cs: Val, shape: Shape) -> None:
    """A whole tile to a C that is contiguous along its columns, as a swapped product's is."""
    element, size, mr, nr, side = shape.element, shape.size, shape.mr, shape.nr, shape.square
    for column in range(0, nr, side):
        for row in range(0, mr, side):
            tall = min(side, mr - row)
            at = tile + row * (nr * size) + column * size
            block = [f.load(at + i * (nr * size), vec(element, side)) for i in range(tall)]
            block += [block[-1]] * (side - tall)
            for j, x in enumerate(transpose(f, block)):
                part = x if tall == side else f.shuffle(x, x, range(tall))
                f.store(part, c + cs * (column + j) + row * size)
