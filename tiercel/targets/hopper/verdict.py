"""The guard of fused products: kernels that measure an operand, and that judge two records.

The statistics and their limits are those of the portable target's guard: the largest and smallest
mean magnitude of 128 neighbours along K. Where planes are combined along contiguous rows of K the
record comes along with them; else ``measure`` reads the operand once more.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from tiercel.lower.recipe import Guard
from tiercel.targets.hopper.compile import cubin
from tiercel.targets.hopper.config import ITEM_BYTES
from tiercel.targets.hopper.driver import Arguments, Kernel, multiprocessors
from tiercel.targets.hopper.launch import Launch, Places
from tiercel.targets.hopper.operand import Matrix
from tiercel.targets.hopper.planes import VECTOR
from tiercel.targets.hopper.wgmma import KINDS

if TYPE_CHECKING:
    import torch

ADDRESSES = 0, 8, 16, 24, 32, 40  # offsets, in an argument of a verdict
RECORD_WORDS = 3  # as the portable target's records; the third is not used here
THREADS = 256
WORDS = {2: "u16", 4: "u32"}  # C++ types by size


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


def argument(judge: Judge, flag: int, left: int, right: int, b: torch.Tensor) -> bytes:
    """``Verdict`` of ``kernels/verdict.cuh``.

    ``left``, ``right``: addresses of the records of A and B.
    """
    indices, values, count = 0, 0, 0
    if judge.samples is not None:
        indices, values = (x.data_ptr() for x in judge.samples)
        count = judge.samples[0].numel()
    return struct.pack(
        "<QQQQQQiffff4x", flag, left, right, b.data_ptr() if count else 0, indices, values, count,
        judge.limits.limit, judge.limits.headroom, *judge.floors,
    )  # fmt: skip


def verdict(judge: Judge, flag: int, left: int, right: int, b: torch.Tensor, device: int) -> Launch:
    """The launch that sets the flag where a scheme must not be used; arguments as above."""
    content = argument(judge, flag, left, right, b)
    dtype = str(b.dtype).removeprefix("torch.")
    places = Places(ADDRESSES)
    return Launch(_kernel(dtype, "judge", device), 1, Arguments(content), THREADS, places)


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
    """CUDA text of the guard's kernels."""
    return f"""\
// The guard of products of {dtype}.
#include "verdict.cuh"

extern "C" __global__ void __launch_bounds__({THREADS})
judge(const __grid_constant__ Verdict verdict) {{
  judge<{THREADS}, {WORDS[ITEM_BYTES[dtype]]}>(verdict);
}}

extern "C" __global__ void __launch_bounds__({THREADS})
measure_k(const __grid_constant__ Measured measured) {{
  measure<{KINDS[dtype][0]}, false>(measured);
}}

extern "C" __global__ void __launch_bounds__({THREADS})
measure_mn(const __grid_constant__ Measured measured) {{
  measure<{KINDS[dtype][0]}, true>(measured);
}}
"""
