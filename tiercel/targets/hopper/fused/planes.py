"""Combined planes of an operand: the kernel that writes them, and where they are in memory."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from tiercel.errors import TiercelValueError
from tiercel.targets.hopper.config import ITEM_BYTES
from tiercel.targets.hopper.fused.tables import PLANES, KernelPlane, sums_of
from tiercel.targets.hopper.launching.compile import cubin
from tiercel.targets.hopper.launching.kernel import Arguments, Kernel
from tiercel.targets.hopper.launching.launch import Launch, Places
from tiercel.targets.hopper.launching.tensor_map import TensorMap
from tiercel.targets.hopper.operands.operand import Matrix
from tiercel.targets.hopper.source import sums_text
from tiercel.targets.hopper.wgmma import KINDS

THREADS = 256
VECTOR = 16  # bytes that a thread handles of each block
SQUARE = 256, 32  # rows and vectors
ADDRESSES = 0, 8, 16, 24, 32, 40  # offsets in a ``Combination``


class Gain(NamedTuple):
    """Addresses of the power of two that the next product's operand is multiplied by before it is
    combined, and of the one that this product's is; 0: it is 1.
    """

    next: int
    used: int


UNITY = Gain(0, 0)


@dataclass(frozen=True)
class BlockGrid:
    """How an operand's view (rows contiguous) is cut into the blocks of a scheme.

    ``order[i]``: (row, column) of block number i in the grid of the view, which for a transposed
    view is not the grid of the scheme.
    """

    view: Matrix
    rows: int
    columns: int
    order: tuple[tuple[int, int], ...]


def order_of(grid: tuple[int, int], transposed: bool) -> tuple[tuple[int, int], ...]:
    """(row, column) in a view of each block of a ``grid``, which the view transposes or not."""
    number = [(i, j) for i in range(grid[0]) for j in range(grid[1])]
    return tuple((j, i) if transposed else (i, j) for i, j in number)


def grid_of(view: Matrix, name: str, grid: tuple[int, int], transposed: bool) -> BlockGrid:
    """Cut ``view`` into a ``grid`` of blocks of the operand, transposed if the view is."""
    down, across = grid[::-1] if transposed else grid
    order = order_of(grid, transposed)
    step = VECTOR // ITEM_BYTES[view.dtype]
    if view.rows % down or view.columns % (across * step):
        raise TiercelValueError(
            f"{name}, seen as {view.rows}x{view.columns}, does not divide into {down}x{across} "
            f"blocks with columns a multiple of {step}; peel the rest off, or use the classical "
            "kernel"
        )
    return BlockGrid(view, view.rows // down, view.columns // across, order)


def plane_bytes(grid: BlockGrid, planes: tuple[KernelPlane, ...]) -> int:
    """Memory for the written planes."""
    item = ITEM_BYTES[PLANES[grid.view.dtype]]
    return sum(p.written for p in planes) * grid.rows * grid.columns * item


class BlockPlace(NamedTuple):
    """Where the kernel finds a plane: in the operand (0) or among the written planes (1), which lie
    below one another; the block's place in that grid.
    """

    array: int
    across: int
    down: int


def places(
    planes: tuple[KernelPlane, ...], grid: tuple[int, int], transposed: bool
) -> tuple[BlockPlace, ...]:
    """Of an operand's planes, in their order; arguments as those of :func:`grid_of`."""
    order, found, written = order_of(grid, transposed), [], 0
    for p in planes:
        if p.written:
            found.append(BlockPlace(1, 0, written))
            written += 1
        else:
            row, column = order[p.plane.terms[0][0]]
            found.append(BlockPlace(0, column, row))
    return tuple(found)


def tensor_maps(
    grid: BlockGrid, planes: tuple[KernelPlane, ...], memory: int, box_rows: int
) -> tuple[TensorMap, TensorMap]:
    """Descriptors of the operand as a grid of blocks, and of the written planes at ``memory``."""
    view, written = grid.view, sum(p.written for p in planes)
    down, across = (max(x) + 1 for x in zip(*grid.order, strict=True))
    own = view.tensor_map_of_blocks(grid.rows, grid.columns, down, across, box_rows)
    if written == 0:
        return own, own  # nothing is read from the second
    rows = grid.rows * written
    made = Matrix(memory, PLANES[view.dtype], rows, grid.columns, grid.columns, 1)
    return own, made.tensor_map_of_blocks(grid.rows, grid.columns, written, 1, box_rows)


def squares(grid: BlockGrid) -> tuple[int, int]:
    """Squares of a block, down and across: each has a counter of finished items."""
    return -(-grid.rows // SQUARE[0]), -(-_vectors(grid, grid.columns) // SQUARE[1])


def _vectors(grid: BlockGrid, elements: int) -> int:
    return elements * ITEM_BYTES[grid.view.dtype] // VECTOR


def arguments(
    grid: BlockGrid, memory: int, record: int, ready: int, gain: Gain, scale: float, band: int
) -> bytes:
    """``Combination`` of ``kernels/combine.cuh``.

    ``record``: address of the operand's record; ``ready``: of the squares' counters.
    """
    view = grid.view
    offsets = [
        _vectors(grid, row * grid.rows * view.row_stride + column * grid.columns)
        for row, column in grid.order
    ]
    return struct.pack(
        f"<QQQQQQ{len(offsets)}qqiiiifi",
        view.address, memory, record, ready, *gain, *offsets, _vectors(grid, view.row_stride),
        grid.rows, _vectors(grid, grid.columns),        *squares(grid), scale, band,
    )  # fmt: skip


def combination(
    grid: BlockGrid,
    planes: tuple[KernelPlane, ...],
    memory: int,
    record: int,
    scale: float,
    device: int,
    measured: bool = False,
) -> Launch | None:
    """Prepare the writing of all written planes; ``None`` when there are none.

    ``measured``: for the guard as well; only where :func:`is_measured` says so.
    """
    sums = sums_of(planes)
    if not sums:
        return None
    made = _kernel(grid.view.dtype, len(grid.order), sums, measured, device)
    blocks = -(-grid.rows * _vectors(grid, grid.columns) // THREADS)
    content = Arguments(arguments(grid, memory, record, 0, UNITY, scale, 1))
    return Launch(made, blocks, content, THREADS, Places(ADDRESSES))


def is_measured(grid: BlockGrid, mn_major: bool, inside: bool) -> bool:
    """Whether who combines an operand measures it, too: if K runs along the rows.

    A kernel of its own must hold whole segments for that.
    """
    return not mn_major and (inside or grid.columns % 256 == 0)


@lru_cache(maxsize=256)
def _kernel(dtype: str, blocks: int, sums: tuple[str, ...], measured: bool, device: int) -> Kernel:
    name = f"combine-{dtype}-{blocks}-{len(sums)}"
    code = cubin(text(dtype, blocks, sums, measured), name)
    return Kernel(code, device, 0, "combine_planes", overlap=False)


def text(dtype: str, blocks: int, sums: tuple[str, ...], measured: bool = False) -> str:
    """CUDA text of the combination kernel.

    >>> print(text("bfloat16", 4, ("block[0] - block[3]", "block[1]")))
    // 2 combined planes of a bfloat16 operand of 4 blocks.
    #include "combine.cuh"
    <BLANKLINE>
    struct Sums {
      static constexpr int planes = 2;
      template <int i, class T>
      static __device__ T plane(const T (&block)[4]) {
        if constexpr (i == 0) return block[0] - block[3];
        else return block[1];
      }
    };
    <BLANKLINE>
    extern "C" __global__ void __launch_bounds__(256)
    combine_planes(const __grid_constant__ Combination<4> planes) {
      combine_all<bf16, Sums, false>(planes);
    }
    <BLANKLINE>
    """
    return f"""\
// {len(sums)} combined planes of a {dtype} operand of {blocks} blocks.
#include "combine.cuh"

{sums_text(sums, blocks)}\
extern "C" __global__ void __launch_bounds__({THREADS})
combine_planes(const __grid_constant__ Combination<{blocks}> planes) {{
  combine_all<{KINDS[dtype][0]}, Sums, {str(measured).lower()}>(planes);
}}
"""
