"""The NumPy interpreter of accumulator programs: the oracle of the kernels that run them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import DTypeLike

from tiercel.lower.accumulator.program import (
    AccumulatorProgram,
    Load,
    Multiply,
    Plane,
    Save,
    Store,
)


@dataclass(frozen=True)
class Rounding:
    """Where a kernel rounds: dtypes of the written planes and of the two kinds of slots.

    ``None`` keeps full precision. Half-precision slots are scaled by a power of two that brings
    their largest entry near 1, as the kernels do, so that they neither overflow nor lose bits.
    """

    planes: DTypeLike | None = None
    register: DTypeLike | None = None
    scratch: DTypeLike | None = None


EXACT = Rounding()


def run(
    program: AccumulatorProgram, a: np.ndarray, b: np.ndarray, rounding: Rounding = EXACT
) -> np.ndarray:
    """Execute a program.

    Args:
        program: any accumulator program.
        a: (M, K), divisible by the grid.
        b: (K, N), divisible by the grid.
        rounding: which values are rounded; products and accumulator keep the operands' dtype.

    Returns:
        C (M, N) in the dtype of ``a @ b``: exact for integers as long as the program's
        coefficients are integers, and for floats that hold small integers.

    >>> import numpy as np
    >>> from tiercel.lower.accumulator import classical
    >>> run(classical(), np.array([[1, 2]]), np.array([[3], [4]]))
    array([[11]])
    """
    a_planes = _planes(program.a_planes, _split(a, program.m, program.k), rounding.planes)
    b_planes = _planes(program.b_planes, _split(b, program.k, program.n), rounding.planes)
    slots: dict[int, np.ndarray] = {}
    blocks: dict[int, np.ndarray] = {}
    acc = np.zeros(())
    for step in program.steps:
        match step:
            case Multiply(left, right, clear):
                product = a_planes[left] @ b_planes[right]
                acc = product if clear else acc + product
            case Save(slot, kind):
                slots[slot] = _rounded(acc, getattr(rounding, kind))
            case Load(slot, scale, clear):
                value = _times(scale, slots[slot])
                acc = value if clear else acc + value
            case Store(c, scale):
                blocks[c] = _times(scale, acc)
    rows = [[blocks[i * program.n + j] for j in range(program.n)] for i in range(program.m)]
    return np.block(rows)


def _split(x: np.ndarray, rows: int, cols: int) -> list[np.ndarray]:
    bands = np.split(x, rows, axis=0)
    return [block for band in bands for block in np.split(band, cols, axis=1)]


def _planes(
    planes: tuple[Plane, ...], blocks: list[np.ndarray], dtype: DTypeLike | None
) -> list[np.ndarray]:
    sums = [reduce(np.add, (_times(c, blocks[i]) for i, c in plane.terms)) for plane in planes]
    if dtype is None:
        return sums
    return [
        x if plane.plain else x.astype(dtype).astype(x.dtype)
        for x, plane in zip(sums, planes, strict=True)
    ]


def _times(scale: float, x: np.ndarray) -> np.ndarray:
    if np.issubdtype(x.dtype, np.integer) and scale == int(scale):
        return int(scale) * x
    return x.dtype.type(scale) * x if np.issubdtype(x.dtype, np.inexact) else scale * x


def _rounded(x: np.ndarray, dtype: DTypeLike | None) -> np.ndarray:
    largest = float(np.max(np.abs(x), initial=0.0))
    if dtype is None or not 0 < largest < np.inf:
        return x
    scale = x.dtype.type(2.0 ** -np.frexp(largest)[1])
    return (x * scale).astype(dtype).astype(x.dtype) / scale
