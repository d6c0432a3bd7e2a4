"""Operands of a product: equally aligned for every library, seeded, in the layout asked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tiercel.bench.case import Case

ALIGNMENT = 64  # bytes; NumPy gives 16, which costs some BLAS libraries 15 %


@dataclass(frozen=True)
class Operands:
    """A (M, K), B (K, N) and an output C (M, N) in C order."""

    a: np.ndarray
    b: np.ndarray
    out: np.ndarray


def empty_aligned(rows: int, cols: int, dtype: str) -> np.ndarray:
    """An uninitialised (rows, cols) array in C order whose first element is 64-byte aligned.

    >>> empty_aligned(3, 5, "float32").ctypes.data % 64
    0
    """
    size = rows * cols * np.dtype(dtype).itemsize
    buffer = np.empty(size + ALIGNMENT, dtype=np.uint8)
    start = -buffer.ctypes.data % ALIGNMENT
    return buffer[start : start + size].view(dtype).reshape(rows, cols)


def make_operands(case: Case, seed: int) -> Operands:
    """Standard normal A and B; the same seed gives every process the same numbers."""
    rng = np.random.default_rng(seed)
    a = _normal(rng, case.m, case.k, case.dtype, case.layout_a)
    b = _normal(rng, case.k, case.n, case.dtype, case.layout_b)
    return Operands(a, b, empty_aligned(case.m, case.n, case.dtype))


def _normal(rng: np.random.Generator, rows: int, cols: int, dtype: str, layout: str) -> np.ndarray:
    if layout == "col":
        return _normal(rng, cols, rows, dtype, "row").T
    array = empty_aligned(rows, cols, dtype)
    rng.standard_normal(out=array, dtype=np.dtype(dtype).type)
    return array
