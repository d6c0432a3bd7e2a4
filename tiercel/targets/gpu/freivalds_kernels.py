"""The two kernels of Freivalds' probe; ``freivalds.py`` launches them."""

# Kernels have the syntax of Python, not its types.
# pyright: reportArgumentType=false
# pyright: reportInvalidTypeForm=false
# pyright: reportOperatorIssue=false

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def entry(i, seed):
    """Entry i of the random vector: its sign and 0.5 to 1.5 from the bits of a mixed counter.

    With ±1 the entries of an even number of equal errors in a row would cancel now and then.
    """
    bits = i.to(tl.uint32) * 0x9E3779B1 + seed.to(tl.uint32)
    bits = (bits ^ (bits >> 16)) * 0x7FEB352D
    bits = (bits ^ (bits >> 15)) * 0x846CA68B
    bits = bits ^ (bits >> 16)
    size = 0.5 + (bits >> 8).to(tl.float32) * 5.9604644775390625e-08
    return tl.where((bits & 1) == 0, size, -size)


@triton.jit
def times_random(
    b, c, M, K, N, stride_k, stride_n, stride_c, y, z, parts, state,
    ROWS: tl.constexpr, COLS: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr,
    PARTS: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """``z = C · x`` and ``y = B · x``, of which the thread block that is last adds up the parts.

    C first, and from its end on, of which L2 may still hold some.
    """
    seed = tl.load(state + 1)
    of_c = tl.cdiv(M, ROWS)
    block = tl.program_id(0)
    if block < of_c:
        m = ((of_c - 1 - block) * ROWS + tl.arange(0, ROWS))[:, None]
        found = tl.zeros((ROWS, COLS), COMPUTE)
        for n0 in range(0, N, COLS):
            n = (n0 + tl.arange(0, COLS))[None, :]
            at = m.to(tl.int64) * stride_c + n
            value = tl.load(c + at, mask=(m < M) & (n < N), other=0.0).to(COMPUTE)
            found += value * entry(n, seed).to(COMPUTE)
        tl.store(z + m, tl.sum(found, 1, keep_dims=True), mask=m < M)
    else:
        part = (block - of_c) % PARTS
        tile = (block - of_c) // PARTS
        k = (tile * TALL + tl.arange(0, TALL))[:, None]
        count = tl.cdiv(N, PARTS * WIDE) * WIDE
        total = tl.zeros((TALL, WIDE), COMPUTE)
        for n0 in range(part * count, tl.minimum(N, (part + 1) * count), WIDE):
            n = (n0 + tl.arange(0, WIDE))[None, :]
            at = k.to(tl.int64) * stride_k + n.to(tl.int64) * stride_n
            value = tl.load(b + at, mask=(k < K) & (n < N), other=0.0).to(COMPUTE)
            total += value * entry(n, seed).to(COMPUTE)
        summed = tl.sum(total, 1, keep_dims=True)
        if PARTS == 1:
            tl.store(y + k, summed, mask=k < K)
        else:
            tl.store(parts + part * K + k, summed, mask=k < K)
            tl.debug_barrier()  # all threads' rows are out before the block counts as done
            if tl.atomic_add(state + 2 + tile, 1) == PARTS - 1:
                whole = tl.zeros((TALL, 1), COMPUTE)
                for i in tl.static_range(PARTS):
                    whole += tl.load(parts + i * K + k, mask=k < K, other=0.0, volatile=True)
                tl.store(y + k, whole, mask=k < K)
                tl.store(state + 2 + tile, 0)


@triton.jit
def compare(
    a, bias, y, rows, record, heard, state, M, N, K, stride_a,
    tolerance: tl.float64, smallest: tl.float64, square: tl.float64,
    NAN: tl.constexpr, BIASED: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
    COMPUTE: tl.constexpr,
):  # fmt: skip
    """The residual of every row, and what it is relative to; the last thread block judges.

    ``rows`` begins with C · x. If a row is wrong, ``record`` becomes one that the guard of
    ``classical`` refuses, and ``heard`` becomes 1.
    """
    seed = tl.load(state + 1)
    m = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    of_a = a + m.to(tl.int64) * stride_a
    expected = tl.zeros((ROWS, COLS), COMPUTE)
    squares = tl.zeros((ROWS, COLS), COMPUTE)
    size = tl.zeros((1, COLS), COMPUTE)
    for k0 in range(0, K, COLS):
        k = (k0 + tl.arange(0, COLS))[None, :]
        value = tl.load(of_a + k, mask=(m < M) & (k < K), other=0.0).to(COMPUTE)
        of_b = tl.load(y + k, mask=k < K, other=0.0)
        expected += value * of_b
        squares += value * value
        size += of_b * of_b
    shift = tl.zeros((1, COLS), COMPUTE)
    if BIASED:
        for n0 in range(0, N, COLS):
            n = (n0 + tl.arange(0, COLS))[None, :]
            x = entry(n, seed).to(COMPUTE)
            shift += tl.load(bias + n, mask=n < N, other=0.0).to(COMPUTE) * x
    product = tl.sum(expected, 1, keep_dims=True) + tl.sum(shift)
    terms = tl.sum(squares, 1, keep_dims=True) * (tl.sum(size) / K) * tl.cast(square, COMPUTE)
    found = tl.load(rows + m, mask=m < M, other=0.0)
    tl.store(rows + m, tl.abs(found - product), mask=m < M)
    tl.store(rows + M + m, product * product + terms, mask=m < M)
    tl.debug_barrier()  # all threads' rows are out before the block counts as done
    if tl.atomic_add(state, 1) == tl.num_programs(0) - 1:
        total = tl.zeros((ROWS * COLS,), COMPUTE)
        for m0 in range(0, M, ROWS * COLS):
            row = m0 + tl.arange(0, ROWS * COLS)
            value = tl.load(rows + M + row, mask=row < M, other=0.0, volatile=True)
            total += tl.where(tl.abs(value) < float("inf"), value, 0.0)
        mean = tl.sum(total) / M
        wrong = tl.zeros((ROWS * COLS,), tl.int32)
        for m0 in range(0, M, ROWS * COLS):
            row = m0 + tl.arange(0, ROWS * COLS)
            value = tl.load(rows + M + row, mask=row < M, other=0.0, volatile=True)
            off = tl.load(rows + row, mask=row < M, other=0.0, volatile=True)
            allowed = tl.sqrt(value + mean) * tl.cast(tolerance, COMPUTE)
            sound = off <= allowed + tl.cast(smallest, COMPUTE)
            wrong |= ((tl.abs(value) < float("inf")) & (sound == 0)).to(tl.int32)
        bits = record.dtype.element_ty
        one = tl.full((), 1.0, COMPUTE).to(bits, bitcast=True)
        infinity = tl.full((), float("inf"), COMPUTE).to(bits, bitcast=True)
        is_wrong = tl.max(wrong) > 0
        tl.store(record, tl.where(is_wrong, tl.full((), NAN, bits), one))
        tl.store(record + 1, infinity - one)
        tl.store(record + 2, is_wrong.to(bits))
        tl.store(heard, is_wrong.to(heard.dtype.element_ty), mask=is_wrong)
        tl.store(state, 0)
        tl.store(state + 1, seed + 1)  # another x for the next probe
