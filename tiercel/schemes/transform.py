"""Exact rewritings of a scheme that keep it a matrix product: its symmetries and its scalings."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from tiercel.errors import TiercelValueError
from tiercel.schemes.rational import RationalMatrix, from_numerators, inverse, rational
from tiercel.schemes.scheme import Scheme


def rotate(scheme: Scheme) -> Scheme:
    """The ⟨k,n,m⟩ scheme of the same rank: U ← V, V ← Wᵀ, W ← Uᵀ, row by row.

    It is the cyclic symmetry of trace(A·B·C) = trace(B·C·A); three rotations are the identity.

    >>> from tiercel.schemes import get
    >>> rotate(get("strassen-2x2x3")).grid
    (2, 3, 2)
    """
    m, k, n = scheme.grid
    return Scheme(
        k,
        n,
        m,
        U=scheme.V,
        V=_transposed_rows(scheme.W, m, n),
        W=_transposed_rows(scheme.U, m, k),
        name=scheme.name,
        provenance=_append(scheme, "rotated"),
    )


def transpose(scheme: Scheme) -> Scheme:
    """The ⟨n,k,m⟩ scheme of the same rank that computes Cᵀ = Bᵀ·Aᵀ; an involution."""
    m, k, n = scheme.grid
    return Scheme(
        n,
        k,
        m,
        U=_transposed_rows(scheme.V, k, n),
        V=_transposed_rows(scheme.U, m, k),
        W=_transposed_rows(scheme.W, m, n),
        name=scheme.name,
        provenance=_append(scheme, "transposed"),
    )


def orient(scheme: Scheme, m: int, k: int, n: int) -> Scheme:
    """The ⟨m,k,n⟩ scheme that rotations and a transposition make of `scheme`.

    A scheme that has the grid already is returned as it is.

    Raises:
        TiercelValueError: (m, k, n) is not a reordering of the scheme's grid.

    >>> from tiercel.schemes import get
    >>> orient(get("hopcroft-kerr-2x3x3"), 3, 2, 3)
    Scheme(<3,2,3;15> hopcroft-kerr-2x3x3)
    """
    if sorted(scheme.grid) != sorted((m, k, n)):
        raise TiercelValueError(
            f"cannot orient {scheme} as <{m},{k},{n}>: the grid must be a reordering of "
            f"{scheme.grid}"
        )
    for candidate in (scheme, transpose(scheme)):
        for _ in range(3):
            if candidate.grid == (m, k, n):
                return candidate
            candidate = rotate(candidate)
    raise AssertionError("the six symmetries reach every ordering of three numbers")


def permute_products(scheme: Scheme, order: Sequence[int]) -> Scheme:
    """The same scheme with product ``order[r]`` in place r.

    Raises:
        TiercelValueError: `order` is not a permutation of the products.
    """
    if sorted(order) != list(range(scheme.rank)):
        raise TiercelValueError(
            f"order must list each of the {scheme.rank} products once, from 0: got {list(order)}"
        )
    rows = np.asarray(order)
    U, V, W = (
        from_numerators(x.numerators[rows], x.denominator) for x in (scheme.U, scheme.V, scheme.W)
    )
    return _with(scheme, U, V, W, "products reordered")


def scale_products(scheme: Scheme, left: Sequence[Any], right: Sequence[Any]) -> Scheme:
    """Row r of U times ``left[r]`` and of V times ``right[r]``; W makes up for both.

    Raises:
        TiercelValueError: not one non-zero rational factor per product.
    """
    factors = [[Fraction(x) for x in side] for side in (left, right)]
    if any(len(side) != scheme.rank or 0 in side for side in factors):
        raise TiercelValueError(
            f"scale_products needs {scheme.rank} non-zero factors for each side: got "
            f"{len(left)} and {len(right)}, zeros included"
        )
    a, b = (np.array(side, dtype=object)[:, None] for side in factors)
    U = rational(scheme.U.fractions() * a)
    V = rational(scheme.V.fractions() * b)
    W = rational(scheme.W.fractions() / (a * b))
    return _with(scheme, U, V, W, "products scaled")


def normalise(scheme: Scheme, leading: Literal["one", "power-of-two"] = "one") -> Scheme:
    """Move signs and scales into W, so that equal products look equal.

    Args:
        scheme: any scheme.
        leading: ``"one"`` makes the first non-zero coefficient of each row of U and V equal +1.
            ``"power-of-two"`` divides by ±2^e only, which brings it into [1, 2) and is exact in
            floating point whatever the coefficients are.
    """
    sides = []
    for factor in (scheme.U, scheme.V):
        first = [next(x for x in row if x != 0) for row in factor.fractions()]
        if leading == "power-of-two":
            first = [_power_of_two_part(x) for x in first]
        elif leading != "one":
            raise TiercelValueError(f'leading must be "one" or "power-of-two": got {leading!r}')
        sides.append([1 / x for x in first])
    return scale_products(scheme, *sides)


def canonical(scheme: Scheme) -> Scheme:
    """Normalised, products sorted: schemes that differ in signs, scales and order become equal."""
    scheme = normalise(scheme)
    rows = np.concatenate([x.fractions() for x in (scheme.U, scheme.V, scheme.W)], axis=1)
    order = sorted(range(scheme.rank), key=lambda r: tuple(rows[r]), reverse=True)
    return permute_products(scheme, order)


def equivalent(first: Scheme, second: Scheme) -> bool:
    """Whether two schemes differ only in order, signs and scales of products and in symmetries.

    The symmetries are those of `rotate` and `transpose`; changes of basis are not tried.

    >>> from tiercel.schemes import get
    >>> equivalent(get("strassen"), rotate(get("strassen")))
    True
    >>> equivalent(get("strassen"), get("winograd"))
    False
    """
    wanted = canonical(second)
    for candidate in (first, transpose(first)):
        for _ in range(3):
            if candidate.grid == second.grid and canonical(candidate) == wanted:
                return True
            candidate = rotate(candidate)
    return False


def change_basis(scheme: Scheme, P: Any, Q: Any, R: Any) -> Scheme:
    """The scheme that multiplies (P·A·Q⁻¹) by (Q·B·R⁻¹) with `scheme` and undoes P and R in C.

    With u, v, w as m × k, k × n and m × n matrices, product by product:
    u ← Pᵀ·u·Q⁻ᵀ, v ← Qᵀ·v·R⁻ᵀ, w ← P⁻¹·w·R. The rank stays, additions and accuracy change
    (de Groote 1978).

    Args:
        scheme: an ⟨m,k,n⟩ scheme.
        P: invertible m × m rational matrix.
        Q: invertible k × k rational matrix.
        R: invertible n × n rational matrix.

    Raises:
        TiercelValueError: a matrix of another size, or singular.
    """
    m, k, n = scheme.grid
    p, q, r = (
        _basis(letter, matrix, size)
        for letter, matrix, size in (("P", P, m), ("Q", Q, k), ("R", R, n))
    )
    p_inverse, q_inverse, r_inverse = (inverse(x).fractions() for x in (p, q, r))
    U = _sandwich(p.fractions().T, scheme.U, q_inverse.T)
    V = _sandwich(q.fractions().T, scheme.V, r_inverse.T)
    W = _sandwich(p_inverse, scheme.W, r.fractions())
    return _with(scheme, U, V, W, "in another basis")


def _transposed_rows(matrix: RationalMatrix, rows: int, columns: int) -> RationalMatrix:
    blocks = matrix.numerators.reshape(-1, rows, columns).transpose(0, 2, 1)
    return from_numerators(blocks.reshape(len(blocks), -1), matrix.denominator)


def _sandwich(left: np.ndarray, matrix: RationalMatrix, right: np.ndarray) -> RationalMatrix:
    blocks = matrix.fractions().reshape(-1, len(left), len(right))
    return rational((left @ blocks @ right).reshape(len(blocks), -1))


def _basis(letter: str, matrix: Any, size: int) -> RationalMatrix:
    exact = rational(matrix)
    if exact.shape != (size, size):
        raise TiercelValueError(
            f"change of basis {letter} must be {size} x {size} for this grid: got {exact.shape}"
        )
    return exact


def _power_of_two_part(x: Fraction) -> Fraction:
    """±2^e with |x| / 2^e in [1, 2), exactly."""
    exponent = abs(x.numerator).bit_length() - x.denominator.bit_length()
    if abs(x) < Fraction(2) ** exponent:
        exponent -= 1
    return Fraction(2) ** exponent * (1 if x > 0 else -1)


def _with(
    scheme: Scheme, U: RationalMatrix, V: RationalMatrix, W: RationalMatrix, how: str
) -> Scheme:
    return Scheme(*scheme.grid, U, V, W, name=scheme.name, provenance=_append(scheme, how))


def _append(scheme: Scheme, how: str) -> str:
    return f"{scheme.provenance}, {how}" if scheme.provenance else how
