"""``grouped_gemm``: groups of rows of A, each times its own B, in one launch."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.lower.epilogue import Epilogue
from tiercel.targets.hopper.config import ITEM_BYTES, MOST_GROUPS, Tile
from tiercel.targets.hopper.epilogues import grouped
from tiercel.targets.hopper.epilogues.grouped import Bound, bound, columns_of
from tiercel.targets.hopper.launching.kernel import Arguments
from tiercel.targets.hopper.launching.keys import key_of
from tiercel.targets.hopper.launching.launch import Launch, Runnable, remember, run
from tiercel.targets.hopper.launching.occupancy import multiprocessors
from tiercel.targets.hopper.operands.operand import ALIGNMENT, Matrix, of_tensor, output
from tiercel.targets.hopper.products import heuristic
from tiercel.targets.hopper.products.checks import OPERANDS, check_devices
from tiercel.targets.hopper.products.launch import NOTHING, describe, kernel

if TYPE_CHECKING:
    import torch

OFFSETS = {"int32": 1, "int64": 2}  # dtype → 32-bit words

NO_OPERANDS: Mapping[str, Any] = {}

_ready: dict[Any, Runnable] = {}


def grouped_gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    offsets: torch.Tensor,
    *,
    epilogue: Epilogue | None = None,
    operands: Mapping[str, torch.Tensor | float] = NO_OPERANDS,
    out: torch.Tensor | None = None,
    config: Tile | None = None,
    stream: int | None = None,
) -> torch.Tensor:
    """Rows of group g of A times B[g], for all g at once; the host does not see the offsets.

    ``a`` (M, K), of contiguous rows, and ``b`` (G, K, N): types and layouts as in ``gemm``, G at
    most 512. ``offsets``: int32 or int64 on the same device, contiguous; G of them say which row
    follows the last of each group, G + 1 begin with the first row of the first group, 0. They do
    not decrease; what lies outside 0 … M counts as the nearest of these. ``out`` (M, N): of a's
    dtype, bfloat16 for float8, rows of a multiple of 16 bytes. Rows behind the last group become
    0. ``epilogue`` and ``operands``: see ``grouped.bound``.

    Raises :class:`TiercelValueError` or :class:`TiercelTypeError`, naming the argument, for what
    the kernel does not take.
    """
    import torch

    if out is None:
        dtype = a.dtype if a.dtype.itemsize > 1 else torch.bfloat16
        columns = b.shape[-1]
        if epilogue is not None:
            columns = columns_of(epilogue, operands, (b.shape[0], a.shape[0], columns), dtype)
        out = torch.empty((a.shape[0], columns), dtype=dtype, device=a.device)
    key = (
        key_of(a), key_of(b), key_of(offsets), key_of(out), config, epilogue,
        *(x if isinstance(x, (int, float)) else key_of(x) for x in operands.values()),
    )  # fmt: skip
    ready = _ready.get(key)
    if ready is None:
        ready = remember(_ready, key, _prepared(a, b, offsets, out, config, epilogue, operands))
    run(ready, a, stream)
    return out


def _prepared(
    a: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor, out: torch.Tensor,
    tile: Tile | None, epilogue: Epilogue | None, operands: Mapping[str, torch.Tensor | float],
) -> Runnable:  # fmt: skip
    tensors = {name: x for name, x in operands.items() if not isinstance(x, (int, float))}
    check_devices({"a": a, "b": b, "offsets": offsets, "out": out, **tensors})
    left, right, d = of_tensor(a, "a"), of_tensor(b, "b"), of_tensor(out, "out")
    groups = b.shape[0]
    after = None
    if epilogue is not None:
        sizes = (groups, left.rows, right.columns)
        after = bound(epilogue, operands, sizes, d.dtype)
    _check(left, right, d, groups, after)
    ends, step = _ends(offsets, groups)
    if 0 in (d.rows, d.columns):
        return NOTHING
    device = a.get_device()
    sms = multiprocessors(device)
    if tile is None and after is not None:
        tile = heuristic.PINGPONG
    elif tile is None:
        depth = left.columns * ITEM_BYTES[left.dtype] // 2
        tile = heuristic.choose_grouped(groups, left.rows, right.columns, depth, sms)
    config, _, params = describe(left, right, d, tile, device, grouped=True)
    if config.a_mn_major:
        raise TiercelValueError(
            f"a has strides {tuple(a.stride())}; rows of a must be contiguous, since TMA starts at "
            f"multiples of {ALIGNMENT} bytes along what is, and a group at any row. Copy a"
        )
    if after is None:
        code = kernel(config, device)
    else:
        code = grouped.kernel(config, after.instance, after.staged, device)
        params = replace(params, epilogue=after.params(params.tile_columns))
    row_bytes = d.row_stride * ITEM_BYTES[d.dtype]
    # Mirrors ``Groups`` in ``kernels/grouped.cuh``.
    content = struct.pack("<QQqiii4x", ends, d.address, row_bytes, step, groups, d.rows)
    tiles = (d.rows // (tile.m * tile.cluster_m) + groups) * params.cluster_columns  # at most
    blocks = min(sms // tile.cluster, tiles) * tile.cluster
    return Launch(code, blocks, Arguments(replace(params, groups=content).pack()))


def _check(a: Matrix, b: Matrix, d: Matrix, groups: int, after: Bound | None) -> None:
    if a.dtype != b.dtype or a.dtype not in OPERANDS or ITEM_BYTES[a.dtype] > 2:
        raise TiercelTypeError(
            f"a is {a.dtype} and b is {b.dtype}; allowed: both bfloat16, float16 or one kind of "
            "float8"
        )
    if a.batches != 1 or not 1 <= groups <= MOST_GROUPS:
        raise TiercelValueError(
            f"a has {a.batches} matrices and b {groups}; allowed: one, and 1 to {MOST_GROUPS}"
        )
    if a.columns != b.rows or a.columns == 0:
        raise TiercelValueError(
            f"a has {a.columns} columns and b {b.rows} rows; they must agree and not be 0"
        )
    columns = b.columns if after is None else after.columns
    dtype = a.dtype if ITEM_BYTES[a.dtype] == 2 else "bfloat16"
    if (d.rows, d.columns, d.batches, d.dtype) != (a.rows, columns, 1, dtype):
        raise TiercelValueError(
            f"out is {d.dtype} {d.rows}x{d.columns}; allowed: {dtype} {a.rows}x{columns}"
        )
    if d.rows and d.columns and (output(d)[1:] != (False, False)):
        raise TiercelValueError(
            f"out has rows of {d.columns * ITEM_BYTES[d.dtype]} bytes, strides ({d.row_stride}, "
            f"{d.column_stride}) and address {d.address:#x}; rows must be contiguous, and sizes, "
            f"steps and address multiples of {ALIGNMENT} bytes"
        )


def _ends(offsets: torch.Tensor, groups: int) -> tuple[int, int]:
    """Address of the first group's end, and 32-bit words from one end to the next."""
    dtype = str(offsets.dtype).removeprefix("torch.")
    if dtype not in OFFSETS:
        raise TiercelTypeError(f"offsets are {dtype}; allowed: {' or '.join(OFFSETS)}")
    count = tuple(offsets.shape)
    if count not in ((groups,), (groups + 1,)) or not offsets.is_contiguous():
        raise TiercelValueError(
            f"offsets have shape {count} and strides {offsets.stride()}; allowed: a contiguous "
            f"({groups},), the end of each group, or ({groups + 1},), beginning with 0"
        )
    skipped = count[0] - groups
    return offsets.data_ptr() + 4 * OFFSETS[dtype] * skipped, OFFSETS[dtype]
