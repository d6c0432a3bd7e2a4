"""The Brent equations: the finite list of identities that makes a scheme a matrix product.

Three coefficient matrices U, V, W compute C = A·B for every A and B over every ring (Brent 1970)
exactly when, for all indices,

    Σ_r U[r, (i,l)] · V[r, (l',j)] · W[r, (i',j')]  =  1 if i = i', l = l' and j = j', else 0.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from tiercel.errors import TiercelValueError
from tiercel.schemes.rational import RationalMatrix

# Every integer up to here is a float64, and so is every partial sum below it: BLAS is exact.
EXACT_IN_FLOAT64 = 2**53

# Left-hand sides held at a time; 4 Mi float64 are 32 MiB, whatever the size of the scheme.
ENTRIES_PER_BLOCK = 4 * 2**20


def verify(
    grid: tuple[int, int, int], U: RationalMatrix, V: RationalMatrix, W: RationalMatrix
) -> None:
    """Check every Brent equation exactly.

    Args:
        grid: (m, k, n).
        U: (R, m·k). V: (R, k·n). W: (R, m·n).

    Raises:
        TiercelValueError: names the first violated equation, its value and the value required.
    """
    m, k, n = grid
    one = U.denominator * V.denominator * W.denominator
    u, v, w = _exact_dtype(U, V, W, one)
    wanted = u.dtype.type(one) if u.dtype != object else one
    rank = len(u)
    a_per_block = max(1, ENTRIES_PER_BLOCK // (k * n * max(rank, m * n)))
    for start in range(0, m * k, a_per_block):
        columns = range(start, min(start + a_per_block, m * k))
        left = u.T[columns.start : columns.stop, None, :] * v.T[None, :, :]
        sums = (left.reshape(-1, rank) @ w).reshape(len(columns), k, n, m, n)
        expected = _matrix_product_tensor(columns, grid, wanted, sums.dtype)
        violated = sums != expected
        if violated.any():
            _refuse(grid, columns, violated, sums, expected, one)


def _exact_dtype(
    U: RationalMatrix, V: RationalMatrix, W: RationalMatrix, one: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The numerators as float64 when no partial sum can round, as Python integers otherwise."""
    numerators = (U.numerators, V.numerators, W.numerators)
    peaks = [np.abs(x).max(axis=1).tolist() for x in numerators]
    largest_sum = sum(a * b * c for a, b, c in zip(*peaks, strict=True))
    dtype = np.float64 if max(largest_sum, one) < EXACT_IN_FLOAT64 else object
    u, v, w = (x.astype(dtype) for x in numerators)
    return u, v, w


def _matrix_product_tensor(
    columns: range, grid: tuple[int, int, int], one: Any, dtype: np.dtype
) -> np.ndarray:
    """Right-hand sides for the A entries in `columns`: shape (len(columns), k, n, m, n)."""
    m, k, n = grid
    tensor = np.zeros((len(columns), k, n, m, n), dtype=dtype)
    every_j = np.arange(n)
    for position, column in enumerate(columns):
        i, inner = divmod(column, k)
        tensor[position, inner, every_j, i, every_j] = one
    return tensor


def _refuse(
    grid: tuple[int, int, int],
    columns: range,
    violated: np.ndarray,
    sums: np.ndarray,
    expected: np.ndarray,
    one: int,
) -> None:
    m, k, n = grid
    first = tuple(int(x) for x in np.argwhere(violated)[0])
    position, b_row, b_column, c_row, c_column = first
    a_row, a_column = divmod(columns[position], k)
    got = Fraction(int(sums[first]), one)
    required = Fraction(int(expected[first]), one)
    raise TiercelValueError(
        f"not a <{m},{k},{n}> matrix product: the Brent equation of "
        f"A[{a_row},{a_column}] | B[{b_row},{b_column}] | C[{c_row},{c_column}] gives {got}, "
        f"expected {required}; correct the coefficients of U, V or W that enter it "
        "(indices count from 0, C is not transposed)"
    )
