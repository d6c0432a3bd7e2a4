"""What the kernels take: types, sizes and places of A, B, C and D, or an error that says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.targets.hopper.config import OUTPUTS
from tiercel.targets.hopper.operands.operand import Matrix

if TYPE_CHECKING:
    import torch

FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
OPERANDS = ("bfloat16", "float16", *FLOAT8, "float32")


def check_devices(named: Mapping[str, torch.Tensor | None]) -> None:
    """Raise unless all tensors are on one CUDA device, that of ``a``."""
    a = named["a"]
    for name, tensor in named.items():
        if tensor is not None and a is not None and not (
            tensor.is_cuda and tensor.get_device() == a.get_device()
        ):  # fmt: skip
            raise TiercelTypeError(
                f"{name} is on {tensor.device} and a on {a.device}; all must be on one CUDA device"
            )


def check(a: Matrix, b: Matrix, d: Matrix | None, c: Matrix | None) -> None:
    """Raise unless types and sizes fit together."""
    if a.dtype not in OPERANDS or (a.dtype != b.dtype and {a.dtype, b.dtype} != set(FLOAT8)):
        raise TiercelTypeError(
            f"a is {a.dtype} and b is {b.dtype}; the kernel takes "
            f"both as {' or both as '.join(OPERANDS)}, or one as each kind of float8"
        )
    if a.columns != b.rows or a.columns == 0:
        raise TiercelValueError(
            f"a has {a.columns} columns and b has {b.rows} rows; they must agree and not be 0"
        )
    batches = max(a.batches, b.batches)
    if {a.batches, b.batches} - {1, batches}:
        raise TiercelValueError(
            f"a has {a.batches} batches and b has {b.batches}; they must agree, or one be 1"
        )
    for name, matrix in (("out", d), ("c", c)):
        if matrix is None or d is None:
            continue
        if (matrix.rows, matrix.columns) != (a.rows, b.columns) or d.batches < batches:
            raise TiercelValueError(
                f"{name} is {matrix.batches} times {matrix.rows}x{matrix.columns}; the product is "
                f"{batches} times {a.rows}x{b.columns}"
            )
        if d.dtype not in OUTPUTS:
            raise TiercelTypeError(f"out is {d.dtype}; the kernel writes {', '.join(OUTPUTS)}")
        if matrix.dtype != d.dtype:
            raise TiercelTypeError(
                f"{name} is {matrix.dtype} and out is {d.dtype}; they must agree"
            )


def check_c(c: Matrix) -> None:
    """The epilogue reads C in pairs of neighbours in a row."""
    if c.column_stride != 1 or c.row_stride % 2 or c.batch_stride % 2 or c.address % 8:
        raise TiercelValueError(
            f"c has strides ({c.row_stride}, {c.column_stride}); the kernel needs the layout of "
            "out, an even row stride and an address that is a multiple of 8 bytes"
        )
