"""Write-back: finished tiles from scratch into the user's C, through the epilogue, once.

Every element of C is computed completely in scratch (over all products and all of K) and then
passes here: + what C already holds (only when K was split), + bias, activation, conversion to the
output dtype, store with any strides.
"""

from __future__ import annotations

from llvmlite import ir

from tiercel.targets.cpu import activations
from tiercel.targets.cpu.emit import I64, PTR, Function, Val, vec
from tiercel.targets.cpu.storage import Storage


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
    """Emit ``store_tile(tile, c, rs, cs, rows, cols, bias, accumulate, last)``.

    Strides of ``c`` in bytes. ``bias``: pointer to nr elements of the compute dtype, or null.
    ``accumulate``: add to C instead of overwriting it. ``last``: bias and activation apply.
    """
    names = ["rs", "cs", "rows", "cols"]
    args = {"tile": PTR, "c": PTR} | dict.fromkeys(names, I64)
    args |= {"bias": PTR, "accumulate": I64, "last": I64}
    f = Function(module, "store_tile", args, export=True)
    tile, c, rs, cs, rows, cols, bias, accumulate, last = f.args()
    step = lanes * size
    vtype, vectors = vec(element, lanes), nr // lanes

    def each_vector(body) -> None:
        with f.loop(0, rows) as i:
            for v in range(vectors):
                body(i.i, v, tile + i.i * (nr * size) + v * step)

    contiguous = cs.eq(storage.size) & cols.eq(nr)

    def to_c(i: Val, v: int) -> Val:
        return c + i * rs + v * lanes * storage.size

    def old_vector(i: Val, v: int) -> Val:
        return storage.widen(f, f.load(to_c(i, v), vec(storage.memory, lanes)), element)

    with f.when(accumulate.ne(0)), f.either(contiguous) as (whole, part):
        with whole:
            each_vector(
                lambda i, v, at: f.store(f.load(at, vtype, step) + old_vector(i, v), at, step)
            )
        with part, f.loop(0, rows) as i, f.loop(0, cols) as j:
            at = tile + i.i * (nr * size) + j.i * size
            old = storage.widen(f, f.load(c + i.i * rs + j.i * cs, storage.memory), element)
            f.store(f.load(at, element, size) + old, at, size)

    with f.when(last.ne(0)):
        has_bias = Val(f, f.b.icmp_unsigned("!=", bias.v, ir.Constant(PTR, None)))
        with f.when(has_bias):
            each_vector(
                lambda i, v, at: f.store(
                    f.load(at, vtype, step) + f.load(bias + v * step, vtype, size), at, step
                )
            )
        if activation is not None:
            each_vector(
                lambda i, v, at: f.store(
                    activations.emit(f, activation, f.load(at, vtype, step)), at, step
                )
            )

    with f.either(contiguous) as (whole, part):
        with whole:
            each_vector(
                lambda i, v, at: f.store(storage.narrow(f, f.load(at, vtype, step)), to_c(i, v))
            )
        with part, f.loop(0, rows) as i, f.loop(0, cols) as j:
            x = f.load(tile + i.i * (nr * size) + j.i * size, element, size)
            f.store(storage.narrow(f, x), c + i.i * rs + j.i * cs)
    f.ret()
    return f
