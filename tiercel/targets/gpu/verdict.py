"""The guard's verdict for a kernel of another target: a flag that lets its fallback run.

The statistics are those of ``guard.py``. Beside them, two faults are looked for: magnitudes below
what an unscaled float16 plane resolves, and a packed operand that is no longer what it was packed
from. (torch counts changes in place, but not those through ``.data``.)
"""

# Kernels have the syntax of Python, not its types.
# pyright: reportArgumentType=false
# pyright: reportInvalidTypeForm=false
# pyright: reportOperatorIssue=false

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from tiercel.lower.recipe import Guard
from tiercel.targets.gpu import planes
from tiercel.targets.gpu.guard import refused
from tiercel.targets.gpu.operand import operand

#: Elements of a packed operand that are compared with what they were.
SAMPLES = 256


@triton.jit
def raise_flag(
    flag, extremes_a, extremes_b, limit: tl.float64, headroom: tl.float64, floor: tl.float64,
    source, places, values,
    SAMPLES: tl.constexpr,
):  # fmt: skip
    """``flag[0] = 1`` where the fallback must run; else it stays as it is."""
    top = tl.full((), float("inf"), tl.float32).to(tl.int32, bitcast=True)
    least_a = (top - tl.load(extremes_a + 1)).to(tl.float32, bitcast=True)
    bad = refused(extremes_a, extremes_b, limit, headroom, tl.float32)
    i = tl.arange(0, SAMPLES)
    changed = tl.load(source + tl.load(places + i)) != tl.load(values + i)
    if bad | (least_a < tl.cast(floor, tl.float32)) | (tl.max(changed.to(tl.int32)) > 0):
        tl.store(flag, 1)


@triton.jit
def spoil(extremes, source, places, values, NAN: tl.constexpr, SAMPLES: tl.constexpr):
    """Make an operand's record one that every guard refuses, where the operand has changed."""
    i = tl.arange(0, SAMPLES)
    changed = tl.load(source + tl.load(places + i)) != tl.load(values + i)
    if tl.max(changed.to(tl.int32)) > 0:
        tl.store(extremes, tl.full((), NAN, extremes.dtype.element_ty))


_RAISE_FLAG: Any = raise_flag
_SPOIL: Any = spoil

#: Bits of a NaN by the record's dtype.
NAN = {torch.int32: 0x7FC00000, torch.int64: 0x7FF8000000000000}


def record_of(x: Tensor, *, along_rows: bool) -> Tensor:
    """The guard's record of a 16-bit matrix: extremes of its segments along K."""
    seen, dtype = operand(x), str(x.dtype).removeprefix("torch.")
    record = torch.zeros(3, dtype=planes.extremes_dtype(dtype), device=x.device)
    planes.measure(seen, record, dtype, along_rows=along_rows, peak=False)
    return record


def samples_of(b: Tensor) -> tuple[Tensor, Tensor]:
    """Places of elements spread over a matrix, in elements from its start, and their values.

    Of complex elements, the real parts: places then count real elements.
    """
    b = _real(b)
    rows, cols = b.shape
    i = torch.arange(SAMPLES, device=b.device)
    # Steps that share no factor with the sizes: all rows and columns are met about equally often.
    row, col = i * rows // SAMPLES, (i * 40503 + 17) % cols
    return row * b.stride(0) + col * b.stride(1), b[row, col].clone()


def _real(b: Tensor) -> Tensor:
    return torch.view_as_real(b)[..., 0] if b.is_complex() else b


def check(b: Tensor, record: Tensor, samples: tuple[Tensor, Tensor]) -> None:
    """Let every guard refuse ``record`` from now on if b has changed; waits for nothing."""
    places, values = samples
    _SPOIL[(1,)](
        record, _real(b), places, values, NAN=NAN[record.dtype], SAMPLES=SAMPLES, num_warps=4
    )


def judge(
    flag: Tensor, a: Tensor, record_b: Tensor, b: Tensor, samples: tuple[Tensor, Tensor],
    limits: Guard, floor: float,
) -> None:  # fmt: skip
    """Set ``flag[0]`` to 1 if a scheme must not multiply a (M, K) by the packed b; waits for none.

    ``floor``: least mean magnitude of a segment of A. ``samples``: of b when it was packed.
    """
    record_a = record_of(a, along_rows=True)
    places, values = samples
    _RAISE_FLAG[(1,)](
        flag, record_a, record_b, limits.limit, limits.headroom, floor, b, places, values,
        SAMPLES=SAMPLES, num_warps=4,
    )  # fmt: skip
