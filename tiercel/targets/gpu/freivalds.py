"""Freivalds' probe in two kernels: every operand and the result are read once.

    y = B · x, z = C · x    x is random, made where it is read
    A · y ≟ z               rows of A and, by the last thread block, the verdict on all of them

PyTorch's own kernels need 26 launches and A with eight columns: 140 µs at 4096³ in float32 on an
H200, 755 µs where the host launches them, beside 2.3 ms for the product.
"""

# Kernels have the syntax of Python, not its types.
# pyright: reportArgumentType=false
# pyright: reportInvalidTypeForm=false
# pyright: reportOperatorIssue=false

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from tiercel.lower.blocking import ceil_div
from tiercel.targets.gpu.classical import classical
from tiercel.targets.gpu.launch import Launch, Memory, current_stream, stand_in
from tiercel.targets.gpu.operand import NAMES, compute_type
from tiercel.targets.gpu.steps import Layout
from tiercel.targets.gpu.verdict import NAN

#: Mean square of the entries of x: uniform between 0.5 and 1.5, of either sign.
SQUARE = 13 / 12

#: Rows of a matrix that lies by rows, and elements of a row at once: ``compare`` then takes 48
#: registers, so that five thread blocks fit; 512 elements took 98 (132 when it read C as well, at
#: 2.9 TB/s).
ROWS, COLS = 8, 256

#: Rows and columns of B at once where its columns are contiguous, and parts of its columns: enough
#: thread blocks to fill the GPU. With 4 parts 32 steps followed each other in a thread block.
TALL, WIDE, PARTS = 128, 32, 16

#: Warps of these kernels.
WARPS = 8

#: Thread blocks of the repair, of which a multiprocessor of an H200 holds four.
THREAD_BLOCKS = 528

#: Number and size of the states that are kept for graphs; of a longer K they are made in the graph.
SPARES = 64, 514

A, B, C, BIAS, SCRATCH, RECORD, STATE, HEARD = range(8)


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


class Probe(NamedTuple):
    """What prepared launches depend on. C (M, N) is to be A (M, K) · B (K, N) + bias."""

    a: Layout
    b: Layout
    c: Layout
    bias: Layout | None
    tolerance: float
    smallest: float


def fits(a: Tensor, b: Tensor, c: Tensor, bias: Tensor | None) -> bool:
    """Whether these are real matrices whose rows are contiguous; B's columns may be instead."""
    return (
        a.dim() == b.dim() == 2
        and not (a.is_complex() or a.is_neg() or b.is_neg())
        and a.stride(1) == c.stride(1) == 1
        and 1 in b.stride()
        and (bias is None or bias.stride(0) == 1)
        and 0 not in (*c.shape, a.shape[1])
    )


def replace_where_wrong(
    a: Tensor, b: Tensor, c: Tensor, bias: Tensor | None, tolerance: float, smallest: float,
    heard: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Probe C, replace it by the classical product if it is wrong; returns that verdict, a bool.

    ``heard``: a bool of the host's in pinned memory, which the device makes true if C is wrong. (A
    copy of the verdict to the host would hold up what follows it in the stream.)

    A row is wrong whose residual exceeds ``tolerance · √(square + mean square) + smallest``, with
    (A·(B·x))² plus the sum of squares of its terms for a square; a row for which that is not finite
    is not judged. Nothing is waited for.
    """
    of = Layout.of
    made = _launches(Probe(of(a), of(b), of(c), bias if bias is None else of(bias), tolerance,
                           smallest))  # fmt: skip
    compute = torch.float64 if a.dtype is torch.float64 else torch.float32
    (M, K), parts = a.shape, _parts(b.stride(0) == 1)
    scratch = torch.empty((1 + parts) * K + 2 * M, dtype=compute, device=a.device)
    record = torch.empty(3, dtype=_bits(compute), device=a.device)
    verdict = record.view(torch.bool)[2 * record.itemsize]  # its lowest byte
    stream = current_stream(a)
    state = _state(a, stream, 2 + ceil_div(K, TALL))
    memory = Memory([a, b, c, bias, scratch, record, state, verdict if heard is None else heard])
    for launch in made:
        launch(memory, stream)
    return verdict


def _bits(compute: torch.dtype) -> torch.dtype:
    return torch.int64 if compute is torch.float64 else torch.int32


def _parts(by_column: bool) -> int:
    return PARTS if by_column else 1


_states: dict[tuple[torch.device, int], Tensor] = {}


class Spares(NamedTuple):
    """States that are zero already, for probes in graphs, which would clear one in each replay."""

    memory: Tensor
    left: Iterator[Tensor]

    @classmethod
    def on(cls, device: torch.device) -> Spares:
        memory = torch.zeros(SPARES, dtype=torch.int32, device=device)
        return cls(memory, iter(memory))


_spares: dict[torch.device, Spares] = {}


def _state(a: Tensor, stream: int, size: int) -> Tensor:
    """At least ``size`` integers: thread blocks that have arrived at the verdict, the next seed,
    and thread blocks that have arrived at each part of B · x. Counts are 0 around a probe.

    Probes of one stream follow each other. A graph may run beside them and has a state of its own.
    """
    if a.is_cuda and torch.cuda.is_current_stream_capturing():
        spare = next(_spares[a.device].left, None) if a.device in _spares else None
        if spare is not None and len(spare) >= size:
            return spare
        return torch.zeros(size, dtype=torch.int32, device=a.device)
    if a.is_cuda and a.device not in _spares:
        _spares[a.device] = Spares.on(a.device)
    key = a.device, stream
    if key not in _states or len(_states[key]) < size:
        _states[key] = torch.zeros(2 * size, dtype=torch.int32, device=a.device)
    return _states[key]


@lru_cache(maxsize=512)
def _launches(probe: Probe) -> tuple[Launch, ...]:
    dtype = NAMES[probe.a.dtype]
    compute = compute_type(dtype)
    width = torch.float64 if compute == tl.float64 else torch.float32
    a, b, c = (
        x.stand_in(slot) for x, slot in ((probe.a, A), (probe.b, B), (probe.c, C))
    )  # fmt: skip
    bias = c if probe.bias is None else probe.bias.stand_in(BIAS)
    (M, K), N, by_column = a.shape, c.shape[1], b.stride(0) == 1
    parts = _parts(by_column)
    y = stand_in(SCRATCH, (K,), (1,), width)
    of_parts = stand_in(SCRATCH, (parts, K), (K, 1), width, K)
    rows = stand_in(SCRATCH, (2, M), (M, 1), width, (1 + parts) * K)
    record = stand_in(RECORD, (3,), (1,), _bits(width))
    state = stand_in(STATE, (2 + ceil_div(K, TALL),), (1,), torch.int32)
    heard = stand_in(HEARD, (1,), (1,), torch.int8)
    down, across = (TALL, WIDE) if by_column else (ROWS, COLS)
    block = 32 if compute == tl.float64 else 64
    tiles = ceil_div(M, block) * ceil_div(N, block)
    return (
        Launch(
            times_random, ceil_div(M, ROWS) + ceil_div(K, down) * parts, b, c, M, K, N,
            *b.stride(), c.stride(0), y, rows, of_parts, state, ROWS=ROWS, COLS=COLS, TALL=down,
            WIDE=across, PARTS=parts, COMPUTE=compute, num_warps=WARPS,
        ),
        Launch(
            compare, ceil_div(M, ROWS), a, bias, y, rows, record, heard, state, M, N, K,
            a.stride(0), probe.tolerance, probe.smallest, SQUARE, NAN=NAN[record.dtype],
            BIASED=probe.bias is not None, ROWS=ROWS, COLS=COLS, COMPUTE=compute, num_warps=WARPS,
        ),
        Launch(
            classical, min(tiles, THREAD_BLOCKS), a, b, c,
            c if probe.bias is None else bias.expand(M, N), M, N, K,
            *a.stride(), *b.stride(), *c.stride(),
            *(c.stride() if probe.bias is None else (0, 1)),
            1.0, 0.0 if probe.bias is None else 1.0, 1.0, 1.0, record, record, 2.0, 2.0,
            COMPLEX=False, PRIOR=probe.bias is not None, COMPUTE=compute, BLOCK=block, DEPTH=16,
            num_warps=4,
        ),
    )  # fmt: skip
