"""A product by a scheme, inside one kernel: planes, gate, fallback."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.lower.accumulator import AccumulatorProgram
from tiercel.targets.hopper import fused, heuristic, planes, source
from tiercel.targets.hopper.compile import cubin
from tiercel.targets.hopper.config import Config, Tile
from tiercel.targets.hopper.driver import Arguments, Kernel, clear_words, multiprocessors
from tiercel.targets.hopper.fused import Fused
from tiercel.targets.hopper.launch import Launch
from tiercel.targets.hopper.operand import Matrix, of_tensor, oriented
from tiercel.targets.hopper.packed import PackedOperand, left_grid, right_grid
from tiercel.targets.hopper.params import Params
from tiercel.targets.hopper.product import launch_of, operand_boxes

if TYPE_CHECKING:
    import torch

TILE = Tile(128, 256, 4, "cooperative", cluster_m=2)
MOST_BLOCKS = 4  # of A that fit into shared memory while they are combined, 12 KB each


class Workspace(NamedTuple):
    """Memory of one call: planes of A, saved sums, and counters, zero at first."""

    a_planes: torch.Tensor
    scratch: torch.Tensor
    flags: torch.Tensor


@dataclass(frozen=True)
class FusedLaunch:
    """All launches of one product, in order, ready to repeat."""

    flag: int  # address of the words that are cleared first: flag, workers, squares
    words: int
    combine: planes.Combine | None
    multiply: Launch
    fallback: Launch
    workspace: tuple[torch.Tensor, ...]  # planes of A, saved sums
    kept: tuple[torch.Tensor, ...]  # what else the launches point to

    def run(self, stream: int) -> None:
        """Enqueue: planes of A, the scheme if they are fine, the classical product if not."""
        clear_words(self.flag, self.words, stream)
        if self.combine is not None:
            self.combine.launch(stream)
        self.multiply.run(stream)
        self.fallback.run(stream)


def prepare(
    a: torch.Tensor,
    b: PackedOperand,
    out: torch.Tensor,
    *,
    alpha: float = 1.0,
    inside: bool | None = None,
    memory: Workspace | None = None,
) -> FusedLaunch:
    """Workspace and launches of out = alpha · A·B, ``a`` (M, K) of the packed operand's dtype.

    ``inside``: A is combined by the product's idle warps, behind the products that need no planes,
    instead of by a kernel of its own before it; by default where A has at most 4 blocks. Nothing
    waits for the device: planes that overflowed or are not finite are noticed there, and the
    classical kernel, launched last, then replaces the result. ``memory``: of the sizes that an
    earlier call with operands of the same sizes and strides used.

    Raises :class:`TiercelValueError` where the sizes do not divide into the scheme's blocks.
    """
    import torch

    program = b.lowered.program
    if inside is None:
        inside = program.m * program.k <= MOST_BLOCKS
    lowered = fused.lower(program, b.lowered.operand, inside)
    left, right, d = of_tensor(a, "a"), of_tensor(b.b, "b"), of_tensor(out, "out")
    _check(left, right, d, lowered, inside)
    grid, device = left_grid(left, program), a.get_device()
    config, blocks, params = _describe(left, right, d, lowered, inside, device)

    if memory is None:
        words = 2 + math.prod(planes.squares(grid)) if inside else 1
        elements = blocks * program.scratch_slots * TILE.m * TILE.n
        memory = Workspace(
            a.new_empty(planes.plane_bytes(grid, lowered.a_planes) // 2, dtype=torch.float16),
            a.new_empty(elements, dtype=torch.float16),
            a.new_zeros(words, dtype=torch.int32),
        )
    a_planes, scratch, flags = memory
    words = flags.numel()
    flag = flags.data_ptr()
    a_box, b_box = operand_boxes(config)
    left_planes = planes.matrices(grid, lowered.a_planes, a_planes.data_ptr())
    right_planes = planes.matrices(
        right_grid(right, program), lowered.b_planes, b.memory.data_ptr()
    )
    params = replace(
        params,
        maps=(
            *(plane.tensor_map(a_box) for plane in left_planes),
            *(plane.tensor_map(b_box) for plane in right_planes),
            *(block.tensor_map(64) for block in _blocks(d, program)),
        ),
        alpha=alpha,
        scratch=scratch.data_ptr(),
        plane_scale=b.scale,
    )
    combine = None
    if inside:
        content = planes.arguments(grid, a_planes.data_ptr(), flag, flag + 4, 1.0, heuristic.GROUP)
        params = replace(params, combination=content)
    else:
        params = replace(params, gate=flag, gate_value=0)
        combine = planes.combination(grid, lowered.a_planes, a_planes.data_ptr(), flag, 1.0, device)
    return FusedLaunch(
        flag,
        words,
        combine,
        Launch(kernel(config, lowered, device), blocks, Arguments(params.pack())),
        launch_of(left, right, d, None, alpha, 0.0, device, gate=(flag, 1)),
        (a_planes, scratch),
        (a, b.b, b.memory, out, flags),
    )


def _describe(
    a: Matrix, b: Matrix, d: Matrix, lowered: Fused, inside: bool, device: int
) -> tuple[Config, int, Params]:
    """Configuration, grid, and the part of the argument that sizes alone decide."""
    program = lowered.program
    tile = TILE
    if inside:  # a stage makes room for the items being combined
        tile = replace(TILE, stages=3, combine_blocks=program.m * program.k)
    config = Config(tile, a.dtype, d.dtype, oriented(a, "a")[1], oriented(b.transposed, "b")[1])
    M, N = d.rows // program.m, d.columns // program.n
    rows, columns = -(-M // (tile.m * tile.cluster_m)), -(-N // (tile.n * tile.cluster_n))
    params = Params(
        maps=(), block_rows=M, block_columns=N, tile_columns=columns,
        k_tiles=-(-a.columns // program.k // 64), cluster_rows=rows, cluster_columns=columns,
        batches=1, group=heuristic.GROUP, a_batch_step=0, b_batch_step=0, alpha=1.0, beta=0.0,
    )  # fmt: skip
    blocks = min(multiprocessors(device) // tile.cluster, rows * columns) * tile.cluster
    return config, blocks, params


def _blocks(d: Matrix, program: AccumulatorProgram) -> list[Matrix]:
    M, N = d.rows // program.m, d.columns // program.n
    return [d.block(i * M, j * N, M, N) for i in range(program.m) for j in range(program.n)]


def _check(a: Matrix, b: Matrix, d: Matrix, lowered: Fused, inside: bool) -> None:
    program = lowered.program
    if a.dtype != lowered.operand:
        raise TiercelTypeError(f"a is {a.dtype}; b was packed for {lowered.operand}")
    if a.columns != b.rows or (d.rows, d.columns) != (a.rows, b.columns):
        raise TiercelValueError(
            f"a is {a.rows}x{a.columns}, b {b.rows}x{b.columns} and out {d.rows}x{d.columns}; "
            "they do not fit together"
        )
    if oriented(d, "out")[1] or d.rows % program.m or d.columns % (8 * program.n):
        raise TiercelValueError(
            f"out of {d.rows}x{d.columns} must be row-major and divide into "
            f"{program.m}x{program.n} blocks with columns a multiple of 8"
        )
    if inside and program.m * program.k > MOST_BLOCKS:
        raise TiercelValueError(
            f"{program.name} has {program.m * program.k} blocks of A; the product itself can "
            f"combine {MOST_BLOCKS}. Use inside=False"
        )


@lru_cache(maxsize=64)
def kernel(config: Config, lowered: Fused, device: int) -> Kernel:
    """The compiled kernel of a program, loaded on a device."""
    name = f"{lowered.program.name}-{config.name}"
    code = cubin(source.text(config, lowered.kernel), name)
    return Kernel(code, device, config.tile.shared_bytes)
