"""Write-back: finished tiles from scratch into the user's C, through the epilogue, once.

Every element of C is computed completely in scratch (over all products and all of K) and then
passes here: + what C already holds (when there are several steps), + bias, activation, conversion
to the output dtype, store with any strides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from llvmlite import ir

from tiercel.targets.cpu.codegen import activations
from tiercel.targets.cpu.codegen.emit import F64, I64, PTR, Function, Val, vec
from tiercel.targets.cpu.codegen.load import transpose
from tiercel.targets.cpu.codegen.storage import Storage


class _Place(NamedTuple):
    """Where a tile's vectors go: address of vector v of row i, and what is stored there of x."""

    at: Callable[[Val, int], Val]
    converted: Callable[[Val], Val]


def emit(
    module: ir.Module,
    storage: Storage,
    element: ir.Type,
    size: int,
    mr: int,
    nr: int,
    lanes: int,
    activation: str | None,
) -> Function:
    """Emit ``store_tile(tile, c, rs, cs, rows, cols, coef, accumulate, bias, activate)``.

    Strides of ``c`` in bytes. ``coef`` (float64) times the tile goes to C, or (``accumulate``) is
    added to it. ``bias``: address of nr elements of the compute dtype, or 0. ``activate``: the
    activation applies (this is the last time that C is touched).
    """
    names = ["rs", "cs", "rows", "cols"]
    args = {"tile": PTR, "c": PTR} | dict.fromkeys(names, I64)
    args |= {"coef": F64, "accumulate": I64, "bias": I64, "activate": I64}
    f = Function(module, "store_tile", args, export=True)
    tile, c, rs, cs, rows, cols, coef, accumulate, bias, activate = f.args()
    step, vectors = lanes * size, nr // lanes
    vtype, row_bytes = vec(element, lanes), nr * size
    factor = f.splat(coef if size == 8 else f.cast(coef, element, "fptrunc"), lanes)
    edge = f.stack(element, mr * nr)  # tiles at the edge of C, or of a strided C, pass through it

    def finish(x: Val, to: _Place, i: Val, v: int, old: Val | None) -> None:
        x = x * factor if old is None else f.fma(x, factor, old)
        at = to.at(i, v)
        with f.either(bias.ne(0)) as (biased, unbiased):
            with biased:
                column = f.load(f.pointer(bias) + v * step, vtype, size)
                write(x + column, to, at)
            with unbiased:
                write(x, to, at)

    def write(x: Val, to: _Place, at: Val) -> None:
        if activation is None:
            f.store(to.converted(x), at)
            return
        with f.either(activate.ne(0)) as (now, later):
            with now:
                f.store(to.converted(activations.emit(f, activation, x)), at)
            with later:
                f.store(to.converted(x), at)

    def each_vector(to: _Place, old: Callable[[Val, int], Val | None]) -> None:
        with f.loop(0, rows) as i:
            # The next tile of this panel, which the next turn over the panels reads: a third less
            # time for write-back. Prefetching C as well gains nothing.
            for line in range(0, row_bytes, 64):
                f.prefetch(tile + (i.i + mr) * row_bytes + line)
            for v in range(vectors):
                x = f.load(tile + i.i * row_bytes + v * step, vtype, step)
                finish(x, to, i.i, v, old(i.i, v))

    in_c = _Place(
        lambda i, v: c + i * rs + v * lanes * storage.size, lambda x: storage.narrow(f, x)
    )
    at_edge = _Place(lambda i, v: edge + i * row_bytes + v * step, lambda x: x)
    with f.either(cs.eq(storage.size) & cols.eq(nr)) as (whole, part):
        with whole, f.either(accumulate.ne(0)) as (add, overwrite):
            with add:
                memory = vec(storage.memory, lanes)
                each_vector(
                    in_c, lambda i, v: storage.widen(f, f.load(in_c.at(i, v), memory), element)
                )
            with overwrite:
                each_vector(in_c, lambda i, v: None)
        with part:
            nothing = f.const(vtype, 0.0)
            for at in range(0, mr * row_bytes, step):
                f.store(nothing, edge + at, step)
            with f.when(accumulate.ne(0)), f.loop(0, rows) as i, f.loop(0, cols) as j:
                old = storage.widen(f, f.load(c + i.i * rs + j.i * cs, storage.memory), element)
                f.store(old, edge + i.i * row_bytes + j.i * size, size)
            each_vector(at_edge, lambda i, v: f.load(at_edge.at(i, v), vtype, step))
            down = rs.eq(storage.size) & rows.eq(mr) & cols.eq(nr)
            with f.either(down & int(storage.size == size)) as (turned, otherwise):
                with turned:
                    _store_columns(f, edge, c, cs, element, size, mr, nr, lanes)
                with otherwise, f.loop(0, rows) as i, f.loop(0, cols) as j:
                    x = f.load(edge + i.i * row_bytes + j.i * size, element, size)
                    f.store(storage.narrow(f, x), c + i.i * rs + j.i * cs)
    f.ret()
    return f


def _store_columns(
    f: Function, tile: Val, c: Val, cs: Val, element: ir.Type, size: int, mr: int, nr: int,
    lanes: int,
) -> None:  # fmt: skip
    """A whole tile to a C that is contiguous along its columns, as a swapped product's is."""
    side = min(lanes, 8)
    for column in range(0, nr, side):
        for row in range(0, mr, side):
            tall = min(side, mr - row)
            at = tile + row * (nr * size) + column * size
            block = [f.load(at + i * (nr * size), vec(element, side)) for i in range(tall)]
            block += [block[-1]] * (side - tall)
            for j, x in enumerate(transpose(f, block)):
                part = x if tall == side else f.shuffle(x, x, range(tall))
                f.store(part, c + cs * (column + j) + row * size)
