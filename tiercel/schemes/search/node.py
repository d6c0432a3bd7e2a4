"""What the walk walks on: a scheme modulo 2 or over -1, 0, 1, packed into words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from tiercel.errors import TiercelValueError
from tiercel.schemes.rational import rational
from tiercel.schemes.scheme import Scheme

Grid = tuple[int, int, int]
Ring = Literal["mod2", "ternary"]
Factors = tuple[np.ndarray, np.ndarray, np.ndarray]

#: Coefficients that one word holds.
WIDEST = {"mod2": 64, "ternary": 32}


@dataclass(frozen=True, eq=False)
class Node:
    """A node of the flip graph: R products, none zero, of a scheme that holds in its ring.

    Args:
        grid: (m, k, n).
        ring: ``"mod2"`` (coefficients 0, 1 modulo 2) or ``"ternary"`` (-1, 0, 1 in the integers).
        words: uint64 (R, 3), the packed factors of A, B and C; see `walk`.
        signs: int8 (R,), the sign of each product; all +1 modulo 2.
    """

    grid: Grid
    ring: Ring
    words: np.ndarray
    signs: np.ndarray

    @property
    def rank(self) -> int:
        return len(self.words)


def pack(grid: Grid, ring: Ring, factors: Factors) -> Node:
    """The node of integer coefficient arrays (R, m·k), (R, k·n), (R, m·n).

    Modulo 2, any integers are taken by their parity.

    Raises:
        TiercelValueError: a grid whose factors do not fit a word, or a coefficient that is not
            -1, 0 or 1 in the ternary ring.

    >>> from tiercel.schemes import classical
    >>> pack((1, 1, 2), "mod2", from_scheme(classical(1, 1, 2))).words.tolist()
    [[1, 1, 1], [1, 2, 2]]
    """
    check_width(grid, ring)
    if ring == "mod2":
        words = np.stack([_bits(x % 2 != 0) for x in factors], axis=1)
        return Node(grid, ring, words, np.ones(len(words), np.int8))
    if any(np.abs(x).max(initial=0) > 1 for x in factors):
        raise TiercelValueError(
            "a ternary search needs coefficients -1, 0 and 1: got others; use ring='mod2'"
        )
    signs = np.ones(len(factors[0]), np.int8)
    columns = []
    for x in factors:
        leading = x[np.arange(len(x)), (x != 0).argmax(axis=1)]
        signs *= leading.astype(np.int8)
        x = x * leading[:, None]
        columns.append(_bits(x > 0) | (_bits(x < 0) << np.uint64(32)))
    return Node(grid, ring, np.stack(columns, axis=1), signs)


def check_width(grid: Grid, ring: Ring) -> None:
    """Refuse a grid whose factors do not fit a word.

    Raises:
        TiercelValueError: which grid, and how many entries fit.
    """
    m, k, n = grid
    widest = max(m * k, k * n, m * n)
    if widest > WIDEST[ring]:
        raise TiercelValueError(
            f"a {ring} search packs at most {WIDEST[ring]} entries of a matrix into a word: grid "
            f"{grid} needs {widest}; search a smaller grid and compose"
        )


def unpack(node: Node) -> Factors:
    """Its coefficients as int8 arrays (R, m·k), (R, k·n), (R, m·n); signs are put into the last."""
    m, k, n = node.grid
    factors = []
    for words, width in zip(node.words.T, (m * k, k * n, m * n), strict=True):
        places = np.arange(width, dtype=np.uint64)
        bits = (words[:, None] >> places & np.uint64(1)).astype(np.int8)
        if node.ring == "ternary":
            bits -= (words[:, None] >> (places + np.uint64(32)) & np.uint64(1)).astype(np.int8)
        factors.append(bits)
    factors[2] = factors[2] * node.signs[:, None]
    return factors[0], factors[1], factors[2]


def from_scheme(scheme: Scheme) -> Factors:
    """The coefficients of an integer scheme as integer arrays.

    Raises:
        TiercelValueError: a coefficient that is not an integer.
    """
    matrices = scheme.U, scheme.V, scheme.W
    if not all(x.is_integral for x in matrices):
        raise TiercelValueError(f"the flip graph needs integer coefficients: {scheme} has others")
    return scheme.U.numerators, scheme.V.numerators, scheme.W.numerators


def to_scheme(grid: Grid, factors: Factors, provenance: str = "") -> Scheme:
    """The verified scheme of integer coefficient arrays."""
    U, V, W = (rational(x.astype(np.int64)) for x in factors)
    return Scheme(*grid, U, V, W, provenance=provenance)


def _bits(flags: np.ndarray) -> np.ndarray:
    """One word per row of flags, bit p for column p."""
    weights = np.uint64(1) << np.arange(flags.shape[1], dtype=np.uint64)
    return (flags * weights).sum(axis=1, dtype=np.uint64)
