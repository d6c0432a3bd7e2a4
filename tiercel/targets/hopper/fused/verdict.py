"""The guard of fused products: what data must fulfil, and the kernel that measures an operand.

The statistics and their limits are those of the portable target's guard: the largest and smallest
mean magnitude of 128 neighbours along K. They come along with the planes, but for what
``planes.is_measured`` excludes: such an operand is read once more.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from tiercel.lower.recipe import Guard
from tiercel.targets.hopper.config import ITEM_BYTES
from tiercel.targets.hopper.fused.planes import VECTOR
from tiercel.targets.hopper.launching.compile import cubin
from tiercel.targets.hopper.launching.kernel import Arguments, Kernel
from tiercel.targets.hopper.launching.launch import Launch, Places
from tiercel.targets.hopper.launching.occupancy import multiprocessors
from tiercel.targets.hopper.operands.operand import Matrix
from tiercel.targets.hopper.wgmma import KINDS

if TYPE_CHECKING:
    import torch

ADDRESSES = 0, 8, 16, 24, 32  # offsets in a ``Verdict``
RECORD_WORDS = 4  # the first two as the portable target's records have them
REFUSED = 2  # is 1 where planes do not hold the operand
GAIN = 3  # bits of the operand's gain: ``kernels/gain.cuh``
THREADS = 256


@dataclass(frozen=True)
class Judge:
    """What a product's data must fulfil.

    ``floors``: least mean magnitudes of A and B. ``record``: of a packed B, None where it is
    measured in each call; ``samples``: places and values of some of its elements then.
    """

    limits: Guard
    floors: tuple[float, float]
    record: torch.Tensor | None = None
    samples: tuple[torch.Tensor, torch.Tensor] | None = None


#: Anything that fits into planes.
ANY = Judge(Guard(math.inf, math.inf), (0.0, 0.0))


def argument(judge: Judge, left: int, right: int, b: torch.Tensor) -> bytes:
    """``Verdict`` of ``kernels/verdict.cuh``.

    ``left``, ``right``: addresses of the records of A and B, if that is not packed.
    """
    if judge.record is not None:
        right = judge.record.data_ptr()
    indices, values, count = 0, 0, 0
    if judge.samples is not None:
        indices, values = (x.data_ptr() for x in judge.samples)
        count = judge.samples[0].numel()
    return struct.pack(
        "<QQQQQiffff4x", left, right, b.data_ptr() if count else 0, indices, values, count,
        judge.limits.limit, judge.limits.headroom, *judge.floors,
    )  # fmt: skip


def measurement(view: Matrix, mn_major: bool, record: int, device: int) -> Launch:
    """The launch that measures an operand whose view has contiguous rows."""
    name = "measure_mn" if mn_major else "measure_k"
    vectors = [x * ITEM_BYTES[view.dtype] // VECTOR for x in (view.row_stride, view.columns)]
    content = struct.pack("<QQqii", view.address, record, vectors[0], view.rows, vectors[1])
    blocks = 8 * multiprocessors(device)
    made = _kernel(view.dtype, name, device)
    return Launch(made, blocks, Arguments(content), THREADS, Places((0, 8)))


@lru_cache(maxsize=64)
def _kernel(dtype: str, name: str, device: int) -> Kernel:
    code = cubin(text(dtype), f"verdict-{dtype}")
    return Kernel(code, device, 0, name, overlap=False)


def text(dtype: str) -> str:
    """CUDA text of the kernels that measure, along rows and down them."""
    return f"""\
// The guard's record of a {dtype} operand.
#include "verdict.cuh"

extern "C" __global__ void __launch_bounds__({THREADS})
measure_k(const __grid_constant__ Measured measured) {{
  measure<{KINDS[dtype][0]}, false>(measured);
}}

extern "C" __global__ void __launch_bounds__({THREADS})
measure_mn(const __grid_constant__ Measured measured) {{
  measure<{KINDS[dtype][0]}, true>(measured);
}}
"""
