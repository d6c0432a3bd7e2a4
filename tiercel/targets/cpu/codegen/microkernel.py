"""The macro-kernel: all register tiles of one product, and where each of them goes.

    for each panel of B (nr columns, kept in L1):
        for each row tile of A (mr rows, streamed from L2):
            tile = A[mr, k] · B[k, nr]                in registers
            for each destination d of the product:    c_d (+)= coefficient_d · tile

A scheme's output additions are that last line. Destinations are *tile-major* scratch blocks
(each mr × nr tile contiguous), so the update is a run of aligned vector operations whose speed does
not depend on the leading dimension or the alignment of the user's C.
"""

from __future__ import annotations

from llvmlite import ir

from tiercel.targets.cpu.codegen import ahead
from tiercel.targets.cpu.codegen.emit import Function
from tiercel.targets.cpu.codegen.values import I64, PTR, Val, vec


def chunk(lanes: int) -> int:
    """k steps per loop iteration, and per contiguous run of a row of A.

    A row tile is stored as [k / chunk][mr][chunk]: one sequential stream that the hardware
    prefetcher follows across tiles (plain rows, mr short streams a tile: −5 % of peak at k = 256).
    """
    return max(lanes, 8)


def emit(module: ir.Module, element: ir.Type, size: int, mr: int, nr: int, lanes: int) -> Function:
    """Emit ``macro(a, b, b_step, k, tiles_m, tiles_n, count, dests, coefs, first, panel0, next)``.

    ``a``: row tiles (see :func:`chunk`). ``b``: panels of k × nr, ``b_step`` bytes apart.
    ``dests``: ``count`` pointers to blocks of tiles, ordered panel by panel, of which the first
    panel is ``panel0``; ``coefs``: one element each; ``first``: non-zero (int64) where the block is
    overwritten, not accumulated. ``next``: record of what to fetch meanwhile, see ``ahead.py``.
    """
    f = Function(
        module,
        "macro",
        {
            "a": PTR,
            "b": PTR,
            "b_step": I64,
            "k": I64,
            "tiles_m": I64,
            "tiles_n": I64,
            "count": I64,
            "dests": PTR,
            "coefs": PTR,
            "first": PTR,
            "panel0": I64,
            "next": PTR,
        },
    )
    a, b, b_step, k, tiles_m, tiles_n, count, dests, coefs, first, panel0, following = f.args()
    tile_bytes = mr * nr * size
    soon = ahead.stream(f, following, tiles_m * tiles_n)
    with f.loop(0, tiles_n, carry=soon.start.values()) as panel:
        b_panel = b + panel.i * b_step
        with f.loop(0, tiles_m, carry=panel.carried) as row:
            offset = ((panel0 + panel.i) * tiles_m + row.i) * tile_bytes
            _prefetch(f, dests, count, offset, tile_bytes)
            fetched = ahead.fetch(f, soon, ahead.Position(*row.carried))
            a_tile = a + row.i * (k * (mr * size))
            tile = _register_tile(f, element, size, mr, nr, lanes, a_tile, b_panel, k)
            _update(f, element, size, lanes, tile, count, dests, coefs, first, offset)
            row.next(*fetched.values())
        panel.next(*row.results)
    f.ret()
    return f


def _register_tile(
    f: Function,
    element: ir.Type,
    size: int,
    mr: int,
    nr: int,
    lanes: int,
    a: Val,
    b: Val,
    k: Val,
) -> list[Val]:
    """mr × nr accumulators after k rank-1 updates, row by row."""
    vectors, steps = nr // lanes, chunk(lanes)
    vtype = vec(element, lanes)
    zero = f.const(vtype, 0.0)
    with f.loop(0, k, steps, carry=[zero] * (mr * vectors)) as at:
        acc = list(at.carried)
        a_at = a + at.i * (mr * size)
        b_at = b + at.i * (nr * size)
        for s in range(steps):
            bs = [
                f.load(b_at + (s * nr + v * lanes) * size, vtype, lanes * size)
                for v in range(vectors)
            ]
            for i in range(mr):
                x = f.splat(f.load(a_at + (i * steps + s) * size, element, size), lanes)
                for v in range(vectors):
                    acc[i * vectors + v] = f.fma(x, bs[v], acc[i * vectors + v])
        at.next(*acc)
    return at.results


def _prefetch(f: Function, dests: Val, count: Val, offset: Val, tile_bytes: int) -> None:
    with f.loop(0, count) as d:
        at = f.load(dests + d.i * 8, PTR, 8) + offset
        for line in range(0, tile_bytes, 64):
            f.prefetch(at + line, write=True)


def _update(
    f: Function,
    element: ir.Type,
    size: int,
    lanes: int,
    tile: list[Val],
    count: Val,
    dests: Val,
    coefs: Val,
    first: Val,
    offset: Val,
) -> None:
    vtype = vec(element, lanes)
    step = lanes * size
    with f.loop(0, count) as d:
        at = f.load(dests + d.i * 8, PTR, 8) + offset
        coef = f.splat(f.load(coefs + d.i * size, element, size), lanes)
        fresh = f.load(first + d.i * 8, I64, 8).ne(0)
        with f.either(fresh) as (overwrite, accumulate):
            with overwrite:
                for i, x in enumerate(tile):
                    f.store(x * coef, at + i * step, step)
            with accumulate:
                for i, x in enumerate(tile):
                    f.store(f.fma(x, coef, f.load(at + i * step, vtype, step)), at + i * step, step)
