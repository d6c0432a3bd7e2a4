"""Scales of float8 operands, with the shapes of ``torch._scaled_mm``."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.targets.hopper.config import Scaling

if TYPE_CHECKING:
    import torch

BLOCK = 128  # values of K, and columns of B, that share a scale


@dataclass(frozen=True)
class Scales:
    """Addresses of float32 scales and their strides, 0 where one scale is for all.

    >>> len(Scales("vectors", 0, 0, 1, 0, 0, 1).pack())
    48
    """

    scaling: Scaling
    a: int
    b: int
    a_row_stride: int
    a_k_stride: int
    b_k_stride: int
    b_column_stride: int  # in columns, or in blocks of columns

    def pack(self) -> bytes:
        """The bytes, as ``Scales`` in ``kernels/scales.cuh``."""
        strides = (self.a_row_stride, self.a_k_stride, self.b_k_stride, self.b_column_stride)
        return struct.pack("<QQqqqq", self.a, self.b, *strides)


def scales_of(scale_a: torch.Tensor, scale_b: torch.Tensor, M: int, N: int, K: int) -> Scales:
    """Describe the scales of A (M, K) and B (K, N).

    D = Σ over blocks of K of scale_a · scale_b · (A·B of that block), with either

    - one number or (M, 1) for A, and one number or (1, N) for B, or
    - (M, ⌈K/128⌉) for A, and (⌈K/128⌉, ⌈N/128⌉) or (⌈K/128⌉, N) for B,

    in any strides. Raises :class:`TiercelTypeError` for other types than float32 and
    :class:`TiercelValueError` for other shapes.
    """
    for name, scale in (("scale_a", scale_a), ("scale_b", scale_b)):
        if str(scale.dtype) != "torch.float32":
            raise TiercelTypeError(f"{name} is {scale.dtype}; scales are float32")
    k_blocks, n_blocks = -(-K // BLOCK), -(-N // BLOCK)
    a_shape, b_shape = tuple(scale_a.shape), tuple(scale_b.shape)
    addresses = scale_a.data_ptr(), scale_b.data_ptr()
    of_rows = scale_a.numel() != 1 and a_shape == (M, 1)
    of_columns = scale_b.numel() != 1 and b_shape == (1, N)
    if (of_rows or scale_a.numel() == 1) and (of_columns or scale_b.numel() == 1):
        row = scale_a.stride(0) if of_rows else 0
        scaling = "vectors" if of_rows or of_columns else "number"
        return Scales(scaling, *addresses, row, 0, 0, scale_b.stride(1) if of_columns else 0)
    if a_shape == (M, k_blocks) and b_shape in ((k_blocks, n_blocks), (k_blocks, N)):
        scaling = "blocks" if b_shape[1] == n_blocks else "column blocks"
        return Scales(scaling, *addresses, *scale_a.stride(), *scale_b.stride())
    raise TiercelValueError(
        f"scale_a is {a_shape} and scale_b is {b_shape}; for A ({M}, {K}) and B ({K}, {N}) they "
        f"may be one number or ({M}, 1) and one number or (1, {N}), or, of blocks, "
        f"({M}, {k_blocks}) and ({k_blocks}, {n_blocks}) or ({k_blocks}, {N})"
    )
