"""Schemes from schemes of other sizes: tensor products, sums along m, k and n, projections."""

from __future__ import annotations

from fractions import Fraction
from math import prod

import numpy as np

from tiercel.errors import TiercelValueError
from tiercel.schemes.rational import RationalMatrix, from_numerators, rational
from tiercel.schemes.scheme import Scheme


def classical(m: int, k: int, n: int) -> Scheme:
    """The schoolbook scheme ⟨m,k,n;m·k·n⟩, one product per (i, l, j), j fastest.

    >>> classical(2, 3, 4)
    Scheme(<2,3,4;24> classical)
    """
    i, inner, j = (x.ravel() for x in np.indices((m, k, n)))
    return Scheme(
        m,
        k,
        n,
        U=rational(np.eye(m * k, dtype=np.int64)[i * k + inner]),
        V=rational(np.eye(k * n, dtype=np.int64)[inner * n + j]),
        W=rational(np.eye(m * n, dtype=np.int64)[i * n + j]),
        name="classical",
        provenance="the definition of the matrix product",
    )


def tensor(outer: Scheme, inner: Scheme) -> Scheme:
    """The scheme that applies `outer` to blocks and `inner` to each of its products.

    The grid and the rank are the products of the two. Block (i_outer, i_inner) of a dimension is
    row ``i_outer * inner.m + i_inner``, and product (r_outer, r_inner) is row
    ``r_outer * inner.rank + r_inner``.

    >>> from tiercel.schemes import get
    >>> tensor(get("strassen"), get("laderman"))
    Scheme(<6,6,6;161> strassen*laderman)
    """
    m, k, n = (a * b for a, b in zip(outer.grid, inner.grid, strict=True))
    return Scheme(
        m,
        k,
        n,
        U=_kronecker(outer.U, (outer.m, outer.k), inner.U, (inner.m, inner.k)),
        V=_kronecker(outer.V, (outer.k, outer.n), inner.V, (inner.k, inner.n)),
        W=_kronecker(outer.W, (outer.m, outer.n), inner.W, (inner.m, inner.n)),
        name=_join("*", outer, inner),
        provenance=f"tensor product of {outer} and {inner}",
    )


def concatenate(*schemes: Scheme, axis: str) -> Scheme:
    """The scheme that cuts the dimension `axis` and uses one scheme for each part.

    The ranks add. Along ``"m"`` and ``"n"`` the parts make different blocks of C; along ``"k"``
    they make summands of the same blocks.

    Args:
        schemes: at least one, with equal grids but for `axis`.
        axis: ``"m"``, ``"k"`` or ``"n"``.

    Raises:
        TiercelValueError: another axis, no scheme, or other dimensions that differ.

    >>> from tiercel.schemes import get
    >>> concatenate(get("strassen"), classical(2, 2, 1), axis="n")
    Scheme(<2,2,3;11> strassen+classical)
    """
    _check_parts(schemes, axis)
    size = {letter: getattr(schemes[0], letter) for letter in "mkn"}
    size[axis] = sum(getattr(part, axis) for part in schemes)
    return Scheme(
        size["m"],
        size["k"],
        size["n"],
        U=_stack(schemes, "U", "mk", size, axis),
        V=_stack(schemes, "V", "kn", size, axis),
        W=_stack(schemes, "W", "mn", size, axis),
        name=_join("+", *schemes),
        provenance=f"sum along {axis} of " + " and ".join(str(part) for part in schemes),
    )


def extend(scheme: Scheme, axis: str, size: int) -> Scheme:
    """The scheme with the dimension `axis` enlarged to `size` by a classical part.

    Raises:
        TiercelValueError: another axis, or a size that is not larger.

    >>> from tiercel.schemes import get
    >>> extend(get("strassen"), "n", 3)
    Scheme(<2,2,3;11> strassen+classical)
    """
    grid = _sizes(scheme, axis)
    if size <= grid[axis]:
        raise TiercelValueError(
            f"extend makes {axis} larger: {scheme} has {axis} = {grid[axis]}, got {size}"
        )
    grid[axis] = size - grid[axis]
    return concatenate(scheme, classical(grid["m"], grid["k"], grid["n"]), axis=axis)


def project(scheme: Scheme, axis: str, index: int) -> Scheme:
    """The scheme of one size less along `axis`, as if A, B and C had zeros at `index` there.

    Products of which a factor vanishes are left out; the others keep their order.

    Raises:
        TiercelValueError: another axis, an index outside it, or a dimension of size one.

    >>> from tiercel.schemes import get
    >>> project(get("laderman"), "n", 0).rank  # at best 15
    18
    """
    grid = _sizes(scheme, axis)
    if not 0 <= index < grid[axis] or grid[axis] == 1:
        raise TiercelValueError(
            f"project needs an index from 0 to {grid[axis] - 1} along {axis} and a dimension of at "
            f"least two: got index {index} for {scheme}"
        )
    factors = []
    for letter, axes in zip("UVW", ("mk", "kn", "mn"), strict=True):
        matrix = getattr(scheme, letter)
        blocks = matrix.numerators.reshape(-1, *(grid[x] for x in axes))
        if axis in axes:
            blocks = np.delete(blocks, index, axis=1 + axes.index(axis))
        factors.append((blocks.reshape(scheme.rank, -1), matrix.denominator))
    kept = np.all([numerators.any(axis=1) for numerators, _ in factors], axis=0)
    grid[axis] -= 1
    U, V, W = (from_numerators(x[kept], denominator) for x, denominator in factors)
    return Scheme(
        grid["m"],
        grid["k"],
        grid["n"],
        U,
        V,
        W,
        name=f"{scheme.name}-{axis}{index}" if scheme.name else "",
        provenance=f"{scheme} without {axis} = {index}",
    )


def _sizes(scheme: Scheme, axis: str) -> dict[str, int]:
    if axis not in ("m", "k", "n"):
        raise TiercelValueError(f'axis must be "m", "k" or "n": got {axis!r}')
    return {letter: getattr(scheme, letter) for letter in "mkn"}


def _stack(
    schemes: tuple[Scheme, ...], letter: str, axes: str, size: dict[str, int], cut: str
) -> RationalMatrix:
    """The coefficient rows of every part, each at its place in the larger grid."""
    rows, start = [], 0
    for part in schemes:
        shape = [getattr(part, axis) for axis in axes]
        stop = start + getattr(part, cut)
        place = [slice(start, stop) if axis == cut else slice(None) for axis in axes]
        block = np.full((part.rank, *(size[axis] for axis in axes)), Fraction(0), dtype=object)
        block[:, *place] = getattr(part, letter).fractions().reshape(part.rank, *shape)
        rows.append(block.reshape(part.rank, -1))
        start = stop
    return rational(np.concatenate(rows))


def _kronecker(
    outer: RationalMatrix,
    outer_shape: tuple[int, int],
    inner: RationalMatrix,
    inner_shape: tuple[int, int],
) -> RationalMatrix:
    """Row by row the Kronecker product of two matrices, as rows of one coefficient matrix."""
    # Python integers: the product of two int64 numerators may not fit int64 before it is reduced.
    fits = _peak(outer) * _peak(inner) < 2**63
    dtype = np.int64 if fits else object
    left = outer.numerators.astype(dtype).reshape(-1, 1, outer_shape[0], 1, outer_shape[1], 1)
    right = inner.numerators.astype(dtype).reshape(1, -1, 1, inner_shape[0], 1, inner_shape[1])
    rank = outer.shape[0] * inner.shape[0]
    columns = prod(outer_shape) * prod(inner_shape)
    return from_numerators(
        (left * right).reshape(rank, columns), outer.denominator * inner.denominator
    )


def _peak(matrix: RationalMatrix) -> int:
    return int(np.abs(matrix.numerators).max())


def _join(sign: str, *schemes: Scheme) -> str:
    return sign.join(part.name or "?" for part in schemes)


def _check_parts(schemes: tuple[Scheme, ...], axis: str) -> None:
    if not schemes:
        raise TiercelValueError("concatenate needs at least one scheme: got none")
    _sizes(schemes[0], axis)
    for letter in "mkn":
        sizes = [getattr(part, letter) for part in schemes]
        if letter != axis and len(set(sizes)) > 1:
            raise TiercelValueError(
                f"schemes concatenated along {axis} must agree in {letter}: got sizes {sizes}; "
                "choose schemes with that dimension equal, or another axis"
            )
