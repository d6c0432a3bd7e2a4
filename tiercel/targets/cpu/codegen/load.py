"""Staging: a block of the user's operand, in any layout and dtype, into the packed layout.

Everything that depends on how the caller stored the matrix happens here, once per element: strides,
transposition, conversion from half precision, zero padding of edges. What follows (sums of blocks,
products) sees only aligned, padded blocks of the compute dtype:

    A   row tiles   [tile][k / chunk][mr][chunk]
    B   panels      [panel][k][nr]
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from tiercel.targets.cpu.codegen.emit import Function
from tiercel.targets.cpu.codegen.microkernel import chunk
from tiercel.targets.cpu.codegen.storage import Storage
from tiercel.targets.cpu.codegen.values import I64, PTR, Val, vec


@dataclass(frozen=True)
class Shape:
    """Compile-time constants of the packed layout: compute element, its bytes, lanes, mr, nr."""

    element: ir.Type
    size: int
    lanes: int
    mr: int
    nr: int

    @property
    def chunk(self) -> int:
        return chunk(self.lanes)

    @property
    def square(self) -> int:
        """Side of the blocks transposed in registers (8×8 float32: 24 shuffles)."""
        return min(self.lanes, 8)


#: How far ahead of its use a row-major operand is fetched: runs of a row are short (1 KiB of A,
#: 256 bytes of B) and the next one lies on another page, where no hardware prefetcher goes. Read
#: from memory, A at 8.1 instead of 6.4 GB/s, B at 5.4 instead of 4.5 (16 rows: 5.1).
TILES_AHEAD, ROWS_AHEAD = 1, 4

NAMES = ("rs", "cs", "rows", "cols", "rows_pad", "cols_pad")


def emit(module: ir.Module, storage: Storage, shape: Shape) -> None:
    """Emit the exported ``load_tiles`` (A) and ``load_panels`` (B)."""
    _emit_tiles(module, storage, shape)
    _emit_panels(module, storage, shape)


def _emit_tiles(module: ir.Module, storage: Storage, shape: Shape) -> None:
    """``load_tiles(dst, src, rs, cs, rows, cols, rows_pad, cols_pad)``.

    Row tiles of src[i, j] for i < rows, j < cols, and 0 up to the padded size (multiples of mr and
    of chunk). Strides in bytes.
    """
    f = Function(
        module, "load_tiles", {"dst": PTR, "src": PTR} | dict.fromkeys(NAMES, I64), export=True
    )
    dst, src, rs, cs, rows, cols, rows_pad, cols_pad = f.args()
    mr, size, run = shape.mr, shape.size, shape.chunk
    tile_bytes = cols_pad * (mr * size)

    def place(tile: Val, i: Val | int, j: Val) -> Val:
        """Address of row i of a tile at column j."""
        return tile + j // run * (mr * run * size) + j % run * size + i * (run * size)

    whole, side = cols // run * run, shape.square
    down = rs.eq(storage.size)
    # Columns contiguous in memory: T×T blocks, all tiles for T columns before the next ones, so
    # that T streams are read on (tile by tile, columns a power of two apart evict each other). A
    # block reads T rows even where the tile has fewer: stay inside the matrix.
    safe_rows = f.select(down, (rows - (_covered(mr, side) - mr)).max(0) // mr * mr, 0)
    fast = f.select(down, cols // side * side, 0)
    with f.loop(0, fast, side) as j, f.loop(0, safe_rows, mr) as t:
        tile, at = dst + t.i // mr * tile_bytes, src + t.i * rs + j.i * cs
        for r0 in range(0, mr, side):
            columns = [
                _load(f, storage, shape, at + cs * c + r0 * storage.size, side) for c in range(side)
            ]
            for r, x in enumerate(transpose(f, columns)[: mr - r0]):
                f.store(x, place(tile, r0 + r, j.i))
    with f.loop(0, rows_pad, mr) as t:
        tile, at = dst + t.i // mr * tile_bytes, src + t.i * rs
        tall = (rows - t.i).min(mr).max(0)
        with f.either(cs.eq(storage.size)) as (along, otherwise):
            with along, f.loop(0, tall) as i:
                row = at + i.i * rs
                with f.loop(0, whole, run) as j:
                    f.prefetch(row + rs * (mr * TILES_AHEAD) + j.i * storage.size)
                    for v in range(0, run, shape.lanes):
                        x = _load(f, storage, shape, row + (j.i + v) * storage.size, shape.lanes)
                        f.store(x, place(tile, i.i, j.i) + v * size)
                _one_by_one(
                    f, storage, shape, place(tile, i.i, whole), row + whole * storage.size,
                    cs, cols - whole, size,
                )  # fmt: skip
            with otherwise:
                done = f.select(t.i < safe_rows, fast, 0)
                with f.loop(done, cols) as j, f.loop(0, tall) as i:
                    x = _load(f, storage, shape, at + i.i * rs + j.i * cs)
                    f.store(x, place(tile, i.i, j.i), size)
        zero = f.const(shape.element, 0.0)
        with f.loop(0, mr) as i, f.loop(f.select(i.i < tall, cols, 0), cols_pad) as j:
            f.store(zero, place(tile, i.i, j.i), size)
    f.ret()


def _covered(rows: int, side: int) -> int:
    return -(-rows // side) * side


def _load(f: Function, storage: Storage, shape: Shape, at: Val, lanes: int | None = None) -> Val:
    """One element, or ``lanes`` of them, as compute values."""
    memory = vec(storage.memory, lanes) if lanes else storage.memory
    return storage.widen(f, f.load(at, memory), shape.element)


def _one_by_one(
    f: Function, storage: Storage, shape: Shape, dst: Val, src: Val, step: Val, n: Val, to_step: int
) -> None:
    with f.loop(0, n) as j:
        f.store(_load(f, storage, shape, src + j.i * step), dst + j.i * to_step, shape.size)


def _emit_panels(module: ir.Module, storage: Storage, shape: Shape) -> None:
    """``load_panels(dst, panel_bytes, src, rs, cs, rows, cols, rows_pad, panels)``.

    ``panels`` panels of nr columns each: dst[p][i, j] = src[i, p·nr + j], zero padded. Row-major
    sources are read row by row across all panels, so that memory sees long contiguous runs.
    """
    args = {"dst": PTR, "panel_bytes": I64, "src": PTR}
    args |= dict.fromkeys((*NAMES[:-1], "panels"), I64)
    f = Function(module, "load_panels", args, export=True)
    dst, panel_bytes, src, rs, cs, rows, cols, rows_pad, panels = f.args()
    size, lanes, nr, side = shape.size, shape.lanes, shape.nr, shape.square
    row_bytes = nr * size
    full = f.select(cs.eq(storage.size), cols // nr, 0)
    with f.loop(0, f.select(full > 0, rows, 0)) as i, f.loop(0, full) as p:
        to = dst + p.i * panel_bytes + i.i * row_bytes
        at = src + i.i * rs + p.i * (nr * storage.size)
        for line in range(0, nr * storage.size, 64):
            f.prefetch(at + rs * ROWS_AHEAD + line)
        for v in range(0, nr, lanes):
            x = _load(f, storage, shape, at + v * storage.size, lanes)
            f.store(x, to + v * size, lanes * size)
    with f.loop(full, panels) as p:
        to, at = dst + p.i * panel_bytes, src + p.i * (cs * nr)
        wide = (cols - p.i * nr).min(nr).max(0)
        down = rs.eq(storage.size)
        fast_rows = f.select(down, rows // side * side, 0)
        fast_cols = wide // side * side
        with f.loop(0, fast_cols, side) as j, f.loop(0, fast_rows, side) as i:
            block = at + j.i * cs + i.i * storage.size
            columns = [_load(f, storage, shape, block + cs * c, side) for c in range(side)]
            corner = to + i.i * row_bytes + j.i * size
            for r, x in enumerate(transpose(f, columns)):
                f.store(x, corner + r * row_bytes)
        with f.loop(0, rows) as i:
            start = f.select(i.i < fast_rows, fast_cols, 0)
            row = to + i.i * row_bytes
            _one_by_one(
                f, storage, shape, row + start * size, at + i.i * rs + start * cs,
                cs, wide - start, size,
            )  # fmt: skip
            with f.loop(wide, nr) as j:
                f.store(f.const(shape.element, 0.0), row + j.i * size, size)
    with f.loop(0, panels) as p, f.loop(rows, rows_pad) as i:
        to = dst + p.i * panel_bytes + i.i * row_bytes
        for v in range(0, nr, lanes):
            f.store(f.const(vec(shape.element, lanes), 0.0), to + v * size, lanes * size)
    f.ret()


def transpose(f: Function, rows: list[Val]) -> list[Val]:
    """Transpose a T × T block held in T vectors, quadrants first: log2(T) rounds of shuffles."""
    t = len(rows)
    half = t // 2
    while half >= 1:
        swapped = list(rows)
        for i in range(t):
            if not i & half:
                low = [j if not j & half else t + j - half for j in range(t)]
                high = [j + half if not j & half else t + j for j in range(t)]
                swapped[i] = f.shuffle(rows[i], rows[i + half], low)
                swapped[i + half] = f.shuffle(rows[i], rows[i + half], high)
        rows, half = swapped, half // 2
    return rows
