"""From matrices to the launch of D = alpha · A·B + beta · C: configuration, argument, kernel."""

from __future__ import annotations

import struct
from dataclasses import replace
from functools import lru_cache

from tiercel.errors import TiercelValueError
from tiercel.targets.hopper.config import ITEM_BYTES, Config, Tile
from tiercel.targets.hopper.launching.compile import cubin
from tiercel.targets.hopper.launching.kernel import Kernel
from tiercel.targets.hopper.launching.launch import Launch
from tiercel.targets.hopper.launching.occupancy import multiprocessors
from tiercel.targets.hopper.operands import tf32 as tf32_operands
from tiercel.targets.hopper.operands.operand import Matrix, oriented, output
from tiercel.targets.hopper.products import classical, heuristic, stream_k
from tiercel.targets.hopper.products.checks import check, check_c
from tiercel.targets.hopper.products.paced import keeps_pace
from tiercel.targets.hopper.products.params import Params

NOTHING = Launch(None, 0, None)  # an empty output


def launch_of(
    a: Matrix, b: Matrix, d: Matrix, c: Matrix | None, alpha: float, beta: float, device: int,
    tile: Tile | None = None, alternates: bool = False,
) -> Launch:  # fmt: skip
    """Choose and compile the kernel of D = alpha · A·B + beta · C and build its argument.

    ``alternates``: every other tile of a multiprocessor is multiplied from the end of K to its
    beginning, so that L2 still holds part of what both read, and the tiles of the last turn are
    shared (``stream_k.py``); the order of summation then depends on M and N.
    """
    check(a, b, d, c)
    if d.rows == 0 or d.columns == 0 or d.batches == 0:
        return NOTHING
    d_view, flipped, direct = output(d)
    if flipped:  # Dᵀ = Bᵀ·Aᵀ
        a, b, c = b.transposed, a.transposed, c.transposed if c else None
    if c is not None:
        check_c(c)
    swapped = tf32_operands.swap(a, b)
    if swapped:
        if c is not None or direct or d.dtype != "float32":
            raise TiercelValueError(
                "b is float32 and not contiguous along K, which a kernel needs that adds c, or "
                "whose out TMA cannot store or is not float32. Copy b"
            )
        a, b = b.transposed, a.transposed
    if tile is None:
        sms, depth = multiprocessors(device), a.columns * ITEM_BYTES[a.dtype] // 2
        tile = heuristic.choose(
            a.rows, b.columns, depth, d.batches, sms, splits=False,
            k_major=b.row_stride == 1 and not swapped, large=c is None, item=ITEM_BYTES[a.dtype],
            shares=alternates,
        ).tile  # fmt: skip
    config, blocks, params = describe(a, b, d_view, tile, device, fragments=True)
    config = replace(config, with_c=c is not None, direct=direct, swapped=swapped)
    if direct:
        address = struct.pack("<Qqq", d_view.address, d_view.row_stride, d_view.batch_stride)
        params = replace(params, epilogue=address)
    params = replace(params, alpha=alpha, beta=beta, alternates=int(alternates))
    if c is not None:
        params = replace(
            params, c=c.address, c_row_stride=c.row_stride, c_batch_stride=c.batch_stride
        )
    in_epilogue = (0,) if direct else ()
    division = stream_k.division(config, params, blocks) if alternates else None
    paced = keeps_pace(config, params, blocks)
    made = kernel(replace(config, stream_k=division is not None, paced=paced), device)
    return stream_k.shared_launch(made, blocks, params, division, paced, device, in_epilogue)


def describe(
    a: Matrix, b: Matrix, d: Matrix, tile: Tile, device: int, fragments: bool = False,
    grouped: bool = False,
) -> tuple[Config, int, Params]:  # fmt: skip
    """Configuration, grid and argument of A·B into ``d``, whose rows are contiguous.

    ``fragments``: 4-byte elements of A may go through registers, as they must unless it is K-major.
    """
    a_view, a_mn_major = oriented(a, "a")
    b_view, b_mn_major = oriented(b.transposed, "b")
    fragments = fragments and a_mn_major and ITEM_BYTES[a.dtype] == 4
    if ((a_mn_major and not fragments) or b_mn_major) and ITEM_BYTES[a.dtype] != 2:
        raise TiercelValueError(
            f"{'a' if a_mn_major else 'b'} is {a.dtype} and not contiguous along K, which the "
            "tensor cores need of all but 16-bit types. Copy it, or use the vendor's routine"
        )
    config = Config(
        tile, a.dtype, d.dtype, a_mn_major, b_mn_major, grouped=grouped, fragments=fragments,
        operand_b=None if b.dtype == a.dtype else b.dtype,
    )  # fmt: skip
    rows = -(-a.rows // (tile.m * tile.cluster_m))
    columns = -(-b.columns // (tile.n * tile.cluster_n))
    batches = max(d.batches, a.batches, b.batches)
    k_tiles = -(-a.columns // config.tile_k)
    if tile.cluster_k > k_tiles:
        raise TiercelValueError(
            f"K = {a.columns} is {k_tiles} k-tile of {config.tile_k}; {tile} needs {tile.cluster_k}"
        )
    clusters = rows * columns * batches
    if tile.cluster_k == 1:  # persistent
        clusters = min(clusters, multiprocessors(device) // tile.cluster)
    blocks = clusters * tile.cluster
    a_box, b_box = operand_boxes(config)
    # Rows beyond a small operand stay as they are in shared memory, and only reach what is not
    # stored. To load zeros there takes as long as to load data, or longer.
    unloaded = 0
    if not a_mn_major and tile.cluster_n == config.boxes == 1 and a.rows < tile.m:
        a_box = -(-a.rows // 8) * 8
        unloaded += (tile.m - a_box) * 128
    if not b_mn_major and tile.cluster_m == 1 and b.columns < tile.n:
        b_box = -(-b.columns // 8) * 8
        unloaded += (tile.n - b_box) * 128
    # Where threads store the output its descriptor is not used: any valid one will do.
    a_map, b_map = a_view.tensor_map(a_box, operand=True), b_view.tensor_map(b_box, operand=True)
    params = Params(
        maps=(a_map, b_map, a_map if output(d)[2] else d.tensor_map(64, span=config.store_span)),
        block_rows=a.rows, block_columns=b.columns, tile_columns=-(-b.columns // tile.n),
        k_tiles=k_tiles, cluster_rows=rows, cluster_columns=columns,
        batches=batches,
        group=heuristic.GROUP, a_batch_step=int(a.batches > 1), b_batch_step=int(b.batches > 1),
        unloaded=unloaded, alpha=1.0, beta=0.0,
    )  # fmt: skip
    return config, blocks, params


def operand_boxes(config: Config) -> tuple[int, int]:
    """Rows of the TMA boxes of A and B: the share that one CTA of a cluster loads."""
    tile = config.tile
    a_rows = config.tile_k if config.a_mn_major else tile.m
    b_rows = config.tile_k if config.b_mn_major else tile.n
    boxes = config.boxes
    return a_rows // max(tile.cluster_n, boxes), b_rows // max(tile.cluster_m, boxes)


@lru_cache(maxsize=256)
def kernel(config: Config, device: int) -> Kernel:
    """The compiled plain kernel, loaded on a device."""
    code = cubin(classical.text(config), config.name)
    return Kernel(code, device, config.shared_bytes)
