"""Freivalds' probe in two kernels: every operand and the result are read once.

    y = B · x, z = C · x    x is random, made where it is read
    A · y ≟ z               rows of A and, by the last thread block, the verdict on all of them

PyTorch's own kernels need 26 launches and A with eight columns: 140 µs at 4096³ in float32 on an
H200, 755 µs where the host launches them, beside 2.3 ms for the product.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from tiercel.lower.blocking import ceil_div
from tiercel.targets.gpu.classical import classical
from tiercel.targets.gpu.freivalds_kernels import compare, times_random
from tiercel.targets.gpu.launch import Launch, Memory, current_stream, stand_in
from tiercel.targets.gpu.layout import Layout
from tiercel.targets.gpu.operand import NAMES, compute_type
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
