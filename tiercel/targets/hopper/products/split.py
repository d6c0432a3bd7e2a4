"""Split K: parts of the product as a batch, then their sum in a fixed order.

Few tiles leave most multiprocessors idle when M·N is small. The parts of K are a batch to TMA: same
operands, batch stride K / parts. No atomics: the same call gives the same bits.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from functools import lru_cache

from tiercel.targets.hopper.launching.compile import cubin
from tiercel.targets.hopper.launching.kernel import Arguments, Kernel
from tiercel.targets.hopper.launching.launch import Launch, Places
from tiercel.targets.hopper.operands.operand import Matrix
from tiercel.targets.hopper.source import NAMES

THREADS = 256


def divides(K: int, parts: int) -> bool:
    """Whether K 16-bit elements split into ``parts`` of a multiple of 16 bytes, as TMA needs."""
    return K % (8 * parts) == 0


def parts_of(a: Matrix, b: Matrix, parts: int) -> tuple[Matrix, Matrix]:
    """A (M, K) and B (K, N) as batches of (M, K / parts) and (K / parts, N)."""
    depth = a.columns // parts
    return (
        replace(a, columns=depth, batches=parts, batch_stride=depth * a.column_stride),
        replace(b, rows=depth, batches=parts, batch_stride=depth * b.row_stride),
    )


def reduction(parts: Matrix, out: Matrix, alpha: float, device: int) -> Launch:
    """The launch of out = alpha · sum of parts; ``out`` is row-major."""
    content = struct.pack(
        "<QQqiiif4x", parts.address, out.address, out.row_stride, parts.rows, parts.columns,
        parts.batches, alpha,
    )  # fmt: skip
    blocks = -(-parts.rows * parts.columns // (2 * THREADS))
    made = _kernel(out.dtype, device)
    return Launch(made, blocks, Arguments(content), THREADS, Places((0, 8)))


@lru_cache(maxsize=16)
def _kernel(dtype: str, device: int) -> Kernel:
    return Kernel(cubin(text(dtype), f"reduce-{dtype}"), device, 0, "reduce")


def text(dtype: str) -> str:
    """CUDA text of the summation.

    >>> print(text("bfloat16"))
    // Sum of the parts of a split product, stored as bfloat16.
    #include "reduce.cuh"
    <BLANKLINE>
    extern "C" __global__ void __launch_bounds__(256)
    reduce(const __grid_constant__ ReduceParams params) {
      reduce_parts<bf16>(params);
    }
    <BLANKLINE>
    """
    return f"""\
// Sum of the parts of a split product, stored as {dtype}.
#include "reduce.cuh"

extern "C" __global__ void __launch_bounds__({THREADS})
reduce(const __grid_constant__ ReduceParams params) {{
  reduce_parts<{NAMES[dtype]}>(params);
}}
"""
