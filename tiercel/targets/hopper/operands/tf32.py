"""Layouts of float32 operands, which the tensor cores read from shared memory along K only.

A that is contiguous along M goes through registers, in the order that the instruction wants. B that
is contiguous along N does so as Bᵀ: the kernel computes Dᵀ = Bᵀ·Aᵀ and stores D. Only one operand
can go through registers: where neither is contiguous along K, the smaller one is copied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.targets.hopper.config import ITEM_BYTES
from tiercel.targets.hopper.operands.operand import Matrix
from tiercel.targets.hopper.operands.turned import along_rows

if TYPE_CHECKING:
    import torch


def swap(a: Matrix, b: Matrix) -> bool:
    """Whether only Dᵀ = Bᵀ·Aᵀ has its second operand contiguous along K."""
    return m_major(b.transposed) and not m_major(a)


def m_major(a: Matrix) -> bool:
    """Whether A has 4-byte elements and is not contiguous along K."""
    return ITEM_BYTES[a.dtype] == 4 and not _unit(a.column_stride, a.columns)


def swaps(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Of readable operands: whether Dᵀ is computed."""
    return a.dtype.itemsize == 4 and not _unit(b.stride(-2), b.shape[-2])


def readable(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, plain: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """The operands, or a copy of one, contiguous along K. ``plain``: nothing is added to A·B."""
    if _unit(b.stride(-2), b.shape[-2]):
        return a, b
    if not _unit(a.stride(-1), a.shape[-1]):
        if a.numel() < b.numel() and plain and stored_by_tma(out):
            return along_rows(a), b
    elif plain and stored_by_tma(out):
        return a, b
    return a, along_rows(b.transpose(-1, -2)).transpose(-1, -2)


def stored_by_tma(out: torch.Tensor) -> bool:
    """Whether rows of ``out`` are float32, contiguous and of whole 16-byte chunks."""
    return (
        out.dtype.itemsize == 4
        and out.stride(-1) == 1
        and not (out.shape[-1] % 4 or out.stride(-2) % 4 or out.data_ptr() % 16)
    )


def _unit(stride: int, count: int) -> bool:
    return stride == 1 or count == 1
