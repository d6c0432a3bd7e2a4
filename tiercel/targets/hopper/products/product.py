"""``gemm``: validate, choose, compile once, launch."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.targets.hopper.config import ITEM_BYTES, OUTPUTS, Config, Tile
from tiercel.targets.hopper.launching.compile import cubin
from tiercel.targets.hopper.launching.driver import Kernel, multiprocessors
from tiercel.targets.hopper.launching.launch import Launch, Runnable, Sequence, remember
from tiercel.targets.hopper.launching.movable import Movable, Ready, extent_of
from tiercel.targets.hopper.operands import tf32 as tf32_operands
from tiercel.targets.hopper.operands.operand import ALIGNMENT, Matrix, of_tensor, oriented, output
from tiercel.targets.hopper.products import classical, heuristic, split, stream_k
from tiercel.targets.hopper.products.paced import keeps_pace
from tiercel.targets.hopper.products.params import Params

if TYPE_CHECKING:
    import torch

FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
OPERANDS = ("bfloat16", "float16", *FLOAT8, "float32")
NOTHING = Launch(None, 0, None)  # an empty output

_ready: dict[Any, Ready] = {}


def gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    c: torch.Tensor | None = None,
    tf32: bool = False,
    config: Tile | None = None,
    stream: int | None = None,
) -> torch.Tensor:
    """D = alpha · A·B + beta · C on the tensors' device.

    ``a`` (M, K) or (batch, M, K), ``b`` (K, N) or (batch, K, N): bfloat16 or float16, any layout in
    which one dimension is contiguous and the other strides are multiples of 16 bytes; contiguous
    along K, float8_e4m3fn or float8_e5m2, or one of each (scales go into ``alpha``); or, if
    ``tf32`` allows it, float32, of which an operand may have to be copied (see
    ``operands/tf32.py``). A batch of one, or of stride 0, is broadcast. Products accumulate in
    float32, those of float8 in the tensor cores' own precision ("fast accumulation"; see
    ``gemm_scaled``).

    ``out`` (M, N) or (batch, M, N) is bfloat16, float16 or float32; a new one has the operands'
    dtype, bfloat16 for float8. ``c`` has the dtype and shape of ``out`` and may be it. ``config``
    fixes the tile; by default ``heuristic`` chooses. ``stream``: a raw CUDA stream, the device's
    current one by default.

    Raises :class:`TiercelValueError` or :class:`TiercelTypeError`, naming the argument, for what
    the kernel does not take: the caller may then use the vendor's routine.
    """
    given = out
    if out is None:
        out = empty_product(a, b)
    if a.dtype.itemsize == 4:
        if not tf32:
            raise TiercelTypeError(
                f"a is {a.dtype}, which the tensor cores multiply as TF32, with 11 bits; allow it "
                "by tf32=True, or use the vendor's routine"
            )
        a, b = tf32_operands.readable(a, b, out, beta == 0)
    key = _key(a, b, given, c, alpha, beta, config, stream)
    ready = _ready.get(key)
    if ready is not None:
        tile, parts = ready.choice
    elif config is None and beta == 0 and stream is None:
        tile, parts = _choice(a, b, out)
    else:
        tile, parts = config, None
    arrays, work = [a, b, out], None
    if c is not None:
        arrays.append(c)
    if parts is not None:
        work = _sums(a, parts)
        arrays.append(work)
    addresses = [x.data_ptr() for x in arrays]
    if ready is None or not ready.movable.reaches(addresses):
        made = _prepared(a, b, out, c, work, alpha, beta, tile, config is None)
        movable = Movable(made.launches, [extent_of(x) for x in arrays])
        ready = remember(_ready, key, Ready(made, movable, (tile, parts)))
    with ready.movable.lock:
        ready.movable.to(addresses)
        run(ready.launch, a, stream)
    return out


def _key(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None, c: torch.Tensor | None,
    alpha: float, beta: float, config: Tile | None, stream: int | None,
) -> Any:  # fmt: skip
    return (
        kind_of(a), kind_of(b), None if out is None else kind_of(out),
        None if c is None else kind_of(c), alpha, beta, config, stream is None,
    )  # fmt: skip


def prepared_for(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> Ready | None:
    """What ``gemm(a, b, out=out)`` launches, if it has run."""
    return _ready.get(_key(a, b, out, None, 1.0, 0.0, None, None))


def run(ready: Runnable, a: torch.Tensor, stream: int | None) -> None:
    """Enqueue on ``stream``, or on the current stream of a's device."""
    import torch

    device = a.get_device()
    if stream is None:
        stream = int(torch._C._cuda_getCurrentRawStream(device))
    if torch._C._cuda_getDevice() == device:
        ready.run(stream)
    else:
        with torch.cuda.device(device):
            ready.run(stream)


def _choice(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor
) -> tuple[Tile | None, tuple[int, int, int] | None]:
    """Tile by the heuristic, and the shape of float32 parts if K is to be split (parts, M, N)."""
    if len(out.shape) != 2 or len(a.shape) != 2 or len(b.shape) != 2 or not a.is_cuda:
        return None, None
    if a.dtype.itemsize > 4:  # float64 and complex, which are refused with their name later
        return None, None
    M, N = out.shape
    row, column = out.stride()
    swapped = tf32_operands.swaps(a, b)
    choice = heuristic.choose(
        *((N, M) if swapped else (M, N)), a.shape[1] * a.dtype.itemsize // 2, 1,
        multiprocessors(a.get_device()),
        splits=column == 1 and row % 2 == 0 and out.data_ptr() % 8 == 0,  # stored in pairs
        k_major=b.stride(0) == 1 and column == 1 and not swapped,
        item=a.dtype.itemsize, shares=True,
    )  # fmt: skip
    if choice.parts == 1:
        return choice.tile, None
    return choice.tile, (choice.parts, M, N)


def _sums(like: torch.Tensor, shape: tuple[int, int, int]) -> torch.Tensor:
    """Memory for the float32 results of parts of K."""
    import torch

    return like.new_empty(shape, dtype=torch.float32)


def key_of(tensor: torch.Tensor | None) -> Any:
    """All of a tensor that a launch depends on."""
    if tensor is None:
        return None
    return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), tensor.get_device()


def kind_of(tensor: torch.Tensor) -> Any:
    """All of a tensor that a launch depends on which can be moved to other addresses."""
    phase = tensor.data_ptr() % ALIGNMENT
    return phase, tensor.dtype, tensor.shape, tensor.stride(), tensor.get_device()


def empty_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """An output for A·B, of A's dtype."""
    if len(a.shape) == len(b.shape) == 2 and a.dtype.itemsize > 1:
        return a.new_empty(a.shape[0], b.shape[1])
    import torch

    batch = (a if len(a.shape) >= len(b.shape) else b).shape[:-2]
    if len(a.shape) == len(b.shape) == 3:
        batch = (max(a.shape[0], b.shape[0]),)
    dtype = a.dtype if a.dtype.itemsize > 1 else torch.bfloat16
    return torch.empty((*batch, a.shape[-2], b.shape[-1]), dtype=dtype, device=a.device)


def _prepared(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, c: torch.Tensor | None,
    work: torch.Tensor | None, alpha: float, beta: float, tile: Tile | None, alternates: bool,
) -> Runnable:  # fmt: skip
    check_devices({"a": a, "b": b, "out": out, "c": c})
    if beta != 0 and c is None:
        raise TiercelValueError(f"beta is {beta} and c is missing; give c, or leave beta 0")
    left, right, d = of_tensor(a, "a"), of_tensor(b, "b"), of_tensor(out, "out")
    added = of_tensor(c, "c") if c is not None and beta != 0 else None
    device = a.get_device()
    if work is None:
        return launch_of(left, right, d, added, alpha, beta, device, tile, alternates=alternates)
    check(left, right, d, None)
    parts = of_tensor(work, "work")
    left, right = split.parts_of(left, right, parts.batches)
    multiply = launch_of(left, right, parts, None, 1.0, 0.0, device, tile)
    made = split.reduction(parts, d, alpha, device)
    return Sequence((multiply, Launch(*made, split.THREADS, split.PLACES)))


def check_devices(named: Mapping[str, torch.Tensor | None]) -> None:
    """Raise unless all tensors are on one CUDA device, that of ``a``."""
    a = named["a"]
    for name, tensor in named.items():
        if tensor is not None and a is not None and not (
            tensor.is_cuda and tensor.get_device() == a.get_device()
        ):  # fmt: skip
            raise TiercelTypeError(
                f"{name} is on {tensor.device} and a on {a.device}; all must be on one CUDA device"
            )


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
        _check_c(c)
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


def check(a: Matrix, b: Matrix, d: Matrix | None, c: Matrix | None) -> None:
    """Raise unless types and sizes fit together."""
    if a.dtype not in OPERANDS or (a.dtype != b.dtype and {a.dtype, b.dtype} != set(FLOAT8)):
        raise TiercelTypeError(
            f"a is {a.dtype} and b is {b.dtype}; the kernel takes "
            f"both as {' or both as '.join(OPERANDS)}, or one as each kind of float8"
        )
    if a.columns != b.rows or a.columns == 0:
        raise TiercelValueError(
            f"a has {a.columns} columns and b has {b.rows} rows; they must agree and not be 0"
        )
    batches = max(a.batches, b.batches)
    if {a.batches, b.batches} - {1, batches}:
        raise TiercelValueError(
            f"a has {a.batches} batches and b has {b.batches}; they must agree, or one be 1"
        )
    for name, matrix in (("out", d), ("c", c)):
        if matrix is None or d is None:
            continue
        if (matrix.rows, matrix.columns) != (a.rows, b.columns) or d.batches < batches:
            raise TiercelValueError(
                f"{name} is {matrix.batches} times {matrix.rows}x{matrix.columns}; the product is "
                f"{batches} times {a.rows}x{b.columns}"
            )
        if d.dtype not in OUTPUTS:
            raise TiercelTypeError(f"out is {d.dtype}; the kernel writes {', '.join(OUTPUTS)}")
        if matrix.dtype != d.dtype:
            raise TiercelTypeError(
                f"{name} is {matrix.dtype} and out is {d.dtype}; they must agree"
            )


def _check_c(c: Matrix) -> None:
    """The epilogue reads C in pairs of neighbours in a row."""
    if c.column_stride != 1 or c.row_stride % 2 or c.batch_stride % 2 or c.address % 8:
        raise TiercelValueError(
            f"c has strides ({c.row_stride}, {c.column_stride}); the kernel needs the layout of "
            "out, an even row stride and an address that is a multiple of 8 bytes"
        )
