"""Copies of float32 matrices in the other order, which torch makes at a third of the bandwidth."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING

from tiercel.targets.hopper.launching.compile import cubin
from tiercel.targets.hopper.launching.kernel import Arguments, Kernel
from tiercel.targets.hopper.launching.launch import Launch, on_device

if TYPE_CHECKING:
    import torch

SIDE, THREADS = 64, 256  # as in ``kernels/turn.cuh``

TEXT = f"""\
// Copies in the other order.
#include "turn.cuh"

extern "C" __global__ void __launch_bounds__({THREADS})
turn_matrix(const __grid_constant__ Turn p) {{
  turn(p);
}}
"""


def along_rows(x: torch.Tensor) -> torch.Tensor:
    """A copy of float32 ``x`` (..., rows, columns) whose rows are contiguous and start at multiples
    of 16 bytes, on the current stream.
    """
    rows, columns = x.shape[-2:]
    copy = x.new_empty((*x.shape[:-1], -(-columns // 4) * 4))[..., :columns]
    if x.dim() != 2 or x.stride(0) != 1 or not x.is_cuda:
        return copy.copy_(x)
    import torch

    device = x.get_device()
    content = struct.pack(
        "<QQqqii", x.data_ptr(), copy.data_ptr(), x.stride(1), copy.stride(0), columns, rows
    )
    blocks = -(-rows // SIDE) * -(-columns // SIDE)
    with on_device(device):
        stream = torch._C._cuda_getCurrentRawStream(device)
        Launch(_kernel(device), blocks, Arguments(content), THREADS).run(stream)
    return copy


@lru_cache(maxsize=16)
def _kernel(device: int) -> Kernel:
    return Kernel(cubin(TEXT, "turn"), device, 0, "turn_matrix", overlap=False)
