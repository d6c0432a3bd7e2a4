"""Runs one product with a kernel that writes timestamps."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tiercel.lower.epilogue import Epilogue
from tiercel.targets.hopper.config import Tile
from tiercel.targets.hopper.epilogues.plan import plan
from tiercel.targets.hopper.launching.kernel import Arguments
from tiercel.targets.hopper.launching.launch import Launch
from tiercel.targets.hopper.launching.occupancy import multiprocessors
from tiercel.targets.hopper.operands.operand import Matrix, of_tensor
from tiercel.targets.hopper.products import heuristic
from tiercel.targets.hopper.products.checks import check
from tiercel.targets.hopper.products.launch import describe, kernel
from tiercel.targets.hopper.products.product import empty_product
from tiercel.targets.hopper.tracing.recording import GROUPS, Recording, Traced

if TYPE_CHECKING:
    import torch

CAPACITY = 16_384  # marks of a warp group: about 100 tiles of 64 k-tiles
WARM = 20  # runs before the one that counts: clocks and caches as in the middle of work


def record(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    tile: Tile | None = None,
    epilogue: Epilogue | None = None,
    operands: Mapping[str, torch.Tensor | float] | None = None,
    capacity: int = CAPACITY,
) -> Recording:
    """Timestamps of a·b: ``a`` (M, K), ``b`` (K, N) on a Hopper, in layouts that ``gemm`` takes.

    A traced kernel is another kernel, which may take a little longer. Marks beyond
    ``capacity`` of a warp group are left out.
    """
    import torch

    left, right, device = of_tensor(a, "a"), of_tensor(b, "b"), a.get_device()
    check(left, right, None, None)
    if tile is None:
        of_16_bits = left.columns * a.dtype.itemsize // 2
        sizes = left.rows, right.columns, of_16_bits, 1, multiprocessors(device)
        tile = heuristic.choose(*sizes, splits=False, large=False).tile
    marks = torch.full((multiprocessors(device), len(GROUPS), capacity), -1, device=a.device)
    times = torch.zeros(multiprocessors(device), 5, dtype=torch.int64, device=a.device)
    where = struct.pack("<QQi4x", marks.data_ptr(), times.data_ptr(), capacity)
    launch, kept = (
        _plain(a, b, left, right, tile, where)
        if epilogue is None
        else _fused(a, left, right, tile, epilogue, operands or {}, where)
    )
    stream = torch.cuda.current_stream(device)
    for _ in range(WARM + 1):
        marks.fill_(-1)
        launch.run(stream.cuda_stream)
    torch.cuda.synchronize(device)
    del kept
    used = int((marks != -1).sum(-1).max()) + 1  # of a recording, only what was written is kept
    of = Traced(left.rows, right.columns, left.columns, left.dtype, tile,
                epilogue.name if epilogue else "")  # fmt: skip
    return Recording(
        of,
        marks[: launch.blocks, :, :used].cpu().numpy().view(np.uint64),
        times[: launch.blocks].cpu().numpy().view(np.uint64),
    )


def _plain(
    a: torch.Tensor, b: torch.Tensor, left: Matrix, right: Matrix, tile: Tile, where: bytes
) -> tuple[Launch, Any]:
    out = empty_product(a, b)
    config, blocks, params = describe(left, right, of_tensor(out, "out"), tile, a.get_device())
    params = replace(params, trace=where)
    launch = Launch(
        kernel(replace(config, traced=True), a.get_device()), blocks, Arguments(params.pack())
    )
    return launch, out


def _fused(
    a: torch.Tensor,
    left: Matrix,
    right: Matrix,
    tile: Tile,
    epilogue: Epilogue,
    operands: Mapping[str, torch.Tensor | float],
    where: bytes,
) -> tuple[Launch, Any]:
    import torch

    device = a.get_device()
    planned = plan(left, right, (), epilogue, operands, tile, device)
    arrays = {
        name: torch.empty(shape, dtype=getattr(torch, dtype), device=a.device)
        for kind in (planned.outputs, planned.partials, planned.results)
        for name, (shape, dtype) in kind.items()
    }
    counters = torch.zeros(max(planned.arrivals, 1), dtype=torch.int32, device=a.device)
    launch = planned.launch(
        left, right, arrays, operands, counters.data_ptr(), 1.0, device, trace=where
    )
    return launch, (arrays, counters)
