"""Which data a scheme must not touch: found on the device, and redone there the classical way.

A scheme's rounding error follows the largest row (column) that takes part in a sum, not the one
that it lands in. One pass over the operands records, over all segments of rows of A and columns of
B along K, the largest and smallest mean magnitude. When they differ by more than a limit, or come
near overflow, or are not finite, the classical kernel overwrites the result; otherwise its thread
blocks return at once. The host waits for nothing, so that a call may be captured in a graph.
"""

# Kernels have the syntax of Python, not its types.
# pyright: reportArgumentType=false
# pyright: reportInvalidTypeForm=false

from __future__ import annotations

import triton
import triton.language as tl

from tiercel.lower.program import Program
from tiercel.lower.recipe import Guard

#: Elements of a segment along its row or column. Over 128 normal numbers, means of magnitudes
#: scatter by a factor of 2 to 3 in a large matrix.
SEGMENT = 128

#: Segments cut shorter than this at an edge scatter too much to be judged for being too small.
SHORTEST = 32

#: Largest product of the two operands' ratios (largest : smallest mean of a segment).
SCALE_LIMIT = 16.0

LARGEST = {
    "float16": 3.4028234e38,  # products and sums of 16-bit operands are scaled, or float32
    "bfloat16": 3.4028234e38,
    "float32": 3.4028234e38,
    "float64": 1.7976931e308,
}


def limits(program: Program, dtype: str, K: int) -> Guard:
    """Default limits for a program of all levels: its intermediates never overflow.

    >>> from tiercel.schemes import get
    >>> from tiercel.lower.program import lower
    >>> limits(lower(get("strassen")), "float32", 4096).limit
    16.0
    """
    sums = (
        sum(abs(coef) for _, coef in product.a)
        * sum(abs(coef) for _, coef in product.b)
        * max(abs(coef) for _, coef in product.c)
        for product in program.products
    )
    # a segment's mean bounds its elements only after multiplication with its length
    return Guard(SCALE_LIMIT, LARGEST[dtype] / (sum(sums) * max(K, 1) * SEGMENT**2))


@triton.jit
def segment_means(
    x, rows, cols, stride_row, stride_col, extremes,
    ALONG_ROWS: tl.constexpr, PEAK: tl.constexpr, SEGMENT: tl.constexpr, SHORTEST: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, COMPUTE: tl.constexpr, BITS: tl.constexpr,
):  # fmt: skip
    """Extremes of one plane's segments: largest mean, smallest mean, largest element (``PEAK``).

    They are kept as the bits of floats, which are ordered as those of non-negative floats are, NaN
    above all; the smallest as its distance from infinity, so that every field starts at 0 and
    grows. Maxima do not depend on the order of the atomics.
    """
    col_tiles = tl.cdiv(cols, COLS)
    row0 = tl.program_id(0) // col_tiles * SEGMENT
    col0 = tl.program_id(0) % col_tiles * COLS
    col = col0 + tl.arange(0, COLS)[None, :]
    infinity = tl.full((), float("inf"), COMPUTE).to(BITS, bitcast=True)
    peak = tl.zeros((ROWS, COLS), BITS)
    sums = tl.zeros((ROWS, COLS), COMPUTE)
    most = tl.zeros((ROWS, 1) if ALONG_ROWS else (1, COLS), BITS)
    gap = tl.zeros((ROWS, 1) if ALONG_ROWS else (1, COLS), BITS)
    for start in range(0, SEGMENT, ROWS):
        row = row0 + start + tl.arange(0, ROWS)[:, None]
        at = row.to(tl.int64) * stride_row + col.to(tl.int64) * stride_col
        value = tl.load(x + at, mask=(row < rows) & (col < cols), other=0.0)
        value = tl.abs(value.to(COMPUTE))
        if PEAK:
            peak = tl.maximum(peak, value.to(BITS, bitcast=True))
        if ALONG_ROWS:
            count = tl.minimum(cols - col0, COLS)
            total = tl.sum(value, axis=1, keep_dims=True)
            judged = (row < rows) & (count >= SHORTEST)
            mean = (total / tl.maximum(count, SHORTEST)).to(BITS, bitcast=True)
            most = tl.maximum(most, mean)
            gap = tl.maximum(gap, tl.where(judged, infinity - mean, 0))
        else:
            sums += value
    if not ALONG_ROWS:
        count = tl.minimum(rows - row0, SEGMENT)
        total = tl.sum(sums, axis=0, keep_dims=True)
        judged = (col < cols) & (count >= SHORTEST)
        most = (total / tl.maximum(count, SHORTEST)).to(BITS, bitcast=True)
        gap = tl.where(judged, infinity - most, 0)
    tl.atomic_max(extremes, tl.max(most), sem="relaxed")
    tl.atomic_max(extremes + 1, tl.max(gap), sem="relaxed")
    if PEAK:
        tl.atomic_max(extremes + 2, tl.max(peak), sem="relaxed")


@triton.jit
def refused(extremes_a, extremes_b, limit, headroom, COMPUTE: tl.constexpr):
    """True when the scheme may not be used. Comparisons are such that NaN refuses."""
    infinity = tl.full((), float("inf"), COMPUTE)
    bits = tl.load(extremes_a)
    most_a = bits.to(COMPUTE, bitcast=True)
    most_b = tl.load(extremes_b).to(COMPUTE, bitcast=True)
    top = infinity.to(bits.dtype, bitcast=True)
    least_a = (top - tl.load(extremes_a + 1)).to(COMPUTE, bitcast=True)
    least_b = (top - tl.load(extremes_b + 1)).to(COMPUTE, bitcast=True)
    even = (most_a / least_a) * (most_b / least_b) <= tl.cast(limit, COMPUTE)
    room = tl.cast(headroom, COMPUTE)
    small = (most_a <= room) & (most_b <= room) & (most_a * most_b <= room)
    return (even & small) == 0
