"""A matrix as the kernels see it: real elements, rows along the smaller stride."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton.language as tl
from torch import Tensor

#: Name of a dtype in recipes: ``torch.float32`` → ``"float32"``.
NAMES = {
    getattr(torch, name): name
    for name in ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")
}

#: dtypes of planes and of products.
PLANE = {
    "float16": torch.float16,
    "bfloat16": torch.float16,
    "float32": torch.float32,
    "float64": torch.float64,
    "complex64": torch.float32,
    "complex128": torch.float64,
}
RESULT = {**PLANE, "float16": torch.float32, "bfloat16": torch.float32}


@dataclass(frozen=True)
class Operand:
    """``data``: (rows, cols) real view; the imaginary part of an element follows its real part.

    ``transposed``: data is the transpose of the matrix, chosen so that neighbours along its rows
    are neighbours in memory where the layout allows. ``conjugated``: imaginary parts are stored
    with the other sign.
    """

    data: Tensor
    transposed: bool
    conjugated: bool
    is_complex: bool

    @property
    def strides(self) -> tuple[int, int]:
        """(between rows, between columns) in real elements."""
        return self.data.stride(0), self.data.stride(1)

    def block(self, row: int, col: int) -> Operand:
        """The part from (row, col) of the matrix on; empty past its edge."""
        row, col = (col, row) if self.transposed else (row, col)
        rows, cols = self.data.shape
        part = self.data[min(row, rows) :, min(col, cols) :]
        return Operand(part, self.transposed, self.conjugated, self.is_complex)


def operand(x: Tensor, *, transposed: bool | None = None) -> Operand:
    """``x``, a 2-D tensor of any strides, seen as its layout suggests, or as told.

    No negation is still to be done in it.
    """
    conjugated, is_complex = x.is_conj(), x.is_complex()
    data = torch.view_as_real(x.conj() if conjugated else x)[..., 0] if is_complex else x
    turned = bool(data.stride(0) < data.stride(1)) if transposed is None else transposed
    return Operand(data.mT if turned else data, turned, conjugated, is_complex)


def compute_type(dtype: str) -> tl.dtype:
    """In what the kernels add."""
    return tl.float64 if dtype in ("float64", "complex128") else tl.float32
