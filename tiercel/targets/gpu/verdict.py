"""What a packed operand's guard needs: its record, and samples that tell when it has changed.

torch counts changes in place, but not those through ``.data``.
"""

# Kernels have the syntax of Python, not its types.
# pyright: reportArgumentType=false
# pyright: reportInvalidTypeForm=false
# pyright: reportOperatorIssue=false

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from tiercel.targets.gpu import planes
from tiercel.targets.gpu.launch import ALIGNMENT, Launch, Memory, current_stream, stand_in
from tiercel.targets.gpu.layout import Layout, as_stored
from tiercel.targets.gpu.operand import NAMES, operand
from tiercel.targets.gpu.steps import record

#: Elements of a packed operand that are compared with what they were.
SAMPLES = 256


@triton.jit
def spoil(extremes, source, places, values, NAN: tl.constexpr, SAMPLES: tl.constexpr):
    """Make an operand's record one that every guard refuses, where the operand has changed."""
    i = tl.arange(0, SAMPLES)
    changed = tl.load(source + tl.load(places + i)) != tl.load(values + i)
    if tl.max(changed.to(tl.int32)) > 0:
        tl.store(extremes, tl.full((), NAN, extremes.dtype.element_ty))


#: Bits of a NaN by the record's dtype.
NAN = {torch.int32: 0x7FC00000, torch.int64: 0x7FF8000000000000}


def record_of(x: Tensor, *, along_rows: bool) -> Tensor:
    """The guard's record of a 16-bit matrix: extremes of its segments along K."""
    record = _empty_record(x)
    _run(_measuring(Layout.of(x), along_rows), (x, record))
    return record


def _empty_record(x: Tensor) -> Tensor:
    return torch.zeros(3, dtype=planes.extremes_dtype(NAMES[x.dtype]), device=x.device)


@lru_cache(maxsize=512)
def _measuring(x: Layout, along_rows: bool) -> tuple[Launch, ...]:
    dtype = NAMES[x.dtype]
    seen, extremes = operand(x.stand_in(0)), record(1, dtype)
    return tuple(planes.measure(seen, extremes, dtype, along_rows=along_rows, peak=False))


def _run(work: Iterable[Launch], tensors: Sequence[Tensor]) -> None:
    memory, stream = Memory(tensors), current_stream(tensors[0])
    for launch in work:
        launch(memory, stream)


def samples_of(b: Tensor) -> tuple[Tensor, Tensor]:
    """Places of elements spread over a matrix, in elements from its start, and their values.

    Of complex elements, the real parts: places then count real elements.
    """
    b = torch.view_as_real(as_stored(b))[..., 0] if b.is_complex() else b
    rows, cols = b.shape
    i = torch.arange(SAMPLES, device=b.device)
    # Steps that share no factor with the sizes: all rows and columns are met about equally often.
    row, col = i * rows // SAMPLES, (i * 40503 + 17) % cols
    return row * b.stride(0) + col * b.stride(1), b[row, col].clone()


def check(b: Tensor, record: Tensor, samples: tuple[Tensor, Tensor]) -> None:
    """Let every guard refuse ``record`` from now on if b has changed; waits for nothing."""
    tensors = (record, as_stored(b), *samples)
    _run(_checking(_kinds(tensors)), tensors)


@lru_cache(maxsize=512)
def _checking(tensors: tuple[Kind, ...]) -> tuple[Launch]:
    record, source, places, values = _stand_ins(tensors)
    return (
        Launch(
            spoil, 1, record, source, places, values,
            NAN=NAN[record.dtype], SAMPLES=SAMPLES, num_warps=4,
        ),
    )  # fmt: skip


#: dtype, device and address modulo 16 of a tensor that a kernel gets the start of.
Kind = tuple[torch.dtype, int, int]


def _kinds(tensors: Iterable[Tensor]) -> tuple[Kind, ...]:
    return tuple((x.dtype, x.get_device(), x.data_ptr() % ALIGNMENT) for x in tensors)


def _stand_ins(tensors: tuple[Kind, ...]) -> list[Tensor]:
    return [stand_in(slot, (1,), (1,), _real(dtype)) for slot, (dtype, *_) in enumerate(tensors)]


def _real(dtype: torch.dtype) -> torch.dtype:
    """Of the real and imaginary parts."""
    return {torch.complex64: torch.float32, torch.complex128: torch.float64}.get(dtype, dtype)
