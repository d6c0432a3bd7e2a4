"""Schemes from three bare arrays whose grid and orientation must be read off their shapes."""

from __future__ import annotations

from math import isqrt
from typing import Any

from tiercel.errors import TiercelValueError
from tiercel.schemes.rational import RationalMatrix, from_numerators, rational
from tiercel.schemes.scheme import Scheme


def from_factors(
    U: Any,
    V: Any,
    W: Any,
    *,
    grid: tuple[int, int, int] | None = None,
    c_transposed: bool = False,
    name: str = "",
    provenance: str = "",
) -> Scheme:
    """The scheme of three factor arrays, with one product per row or one per column.

    Args:
        U: (R, m·k) or (m·k, R). V: (R, k·n) or (k·n, R). W: (R, m·n) or (m·n, R).
        grid: (m, k, n); inferred from the three sizes when not given.
        c_transposed: entry (i, j) of C is in column j·m + i of W instead of i·n + j.
        name: see `Scheme`.
        provenance: see `Scheme`.

    Raises:
        TiercelValueError: shapes that fit no grid, or a violated Brent equation.

    >>> identity = [[1, 0], [0, 1]]
    >>> from_factors([[1, 1]], identity, identity)
    Scheme(<1,1,2;2>)
    """
    factors = [rational(x) for x in (U, V, W)]
    factors = _one_product_per_row(factors)
    m, k, n = grid or _grid([x.shape[1] for x in factors])
    if c_transposed:
        factors[2] = _untranspose(factors[2], m, n)
    try:
        return Scheme(m, k, n, *factors, name=name, provenance=provenance)
    except TiercelValueError as error:
        if "Brent" not in str(error):
            raise
        raise TiercelValueError(
            f"{error}. W was read with C {'transposed' if c_transposed else 'not transposed'}: "
            f"if the source stores it the other way, pass c_transposed={not c_transposed}"
        ) from None


def _one_product_per_row(factors: list[RationalMatrix]) -> list[RationalMatrix]:
    rows, columns = ({x.shape[axis] for x in factors} for axis in (0, 1))
    if len(rows) > 1 and len(columns) > 1:
        raise TiercelValueError(
            "U, V and W must have one row, or one column, per product: got shapes "
            f"{[x.shape for x in factors]}, which share neither"
        )
    # Where both axes agree the longer one counts products: R >= max(m·k, k·n, m·n) always.
    by_row = len(columns) > 1 or (len(rows) == 1 and max(rows) >= max(columns))
    return factors if by_row else [_swapped(x) for x in factors]


def _swapped(matrix: RationalMatrix) -> RationalMatrix:
    return from_numerators(matrix.numerators.T, matrix.denominator)


def _untranspose(matrix: RationalMatrix, m: int, n: int) -> RationalMatrix:
    if matrix.shape[1] != m * n:
        return matrix  # Scheme names the wrong shape better than a failed reshape would.
    blocks = matrix.numerators.reshape(-1, n, m).transpose(0, 2, 1)
    return from_numerators(blocks.reshape(len(blocks), -1), matrix.denominator)


def _grid(sizes: list[int]) -> tuple[int, int, int]:
    """(m, k, n) from (m·k, k·n, m·n): each is the root of two products over the third."""
    mk, kn, mn = sizes
    m, k, n = (isqrt(a * b // c) for a, b, c in ((mk, mn, kn), (mk, kn, mn), (kn, mn, mk)))
    if [m * k, k * n, m * n] != sizes:
        raise TiercelValueError(
            f"no grid (m, k, n) has m·k = {mk}, k·n = {kn} and m·n = {mn} coefficients per "
            "product: check the shapes of U, V and W"
        )
    return m, k, n
