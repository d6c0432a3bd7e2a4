"""From a scheme modulo 2 to one over the integers or rationals: Hensel lifting.

If U, V, W satisfy the Brent equations modulo 2^e, then U + 2^e·U' and so on satisfy them modulo
2^(e+1) exactly when U', V', W' solve a linear system modulo 2 whose matrix, the Jacobian of the
equations, is the same at every step (M. Kauers, J. Moosbauer, *Flip graphs for matrix
multiplication*, 2022, section 5). It is eliminated once.

Which unknowns the elimination prefers decides what the lift looks like, for all others keep their
value 0 or 1 for ever. Non-zero coefficients come first, in an order drawn from a seed: zeros stay
zero if that is possible at all, and another seed gives another lift.
"""

from __future__ import annotations

from fractions import Fraction
from math import isqrt

import numpy as np

from tiercel.errors import TiercelValueError
from tiercel.schemes.rational import rational
from tiercel.schemes.scheme import Scheme
from tiercel.schemes.search.jit import njit
from tiercel.schemes.search.node import Grid, Node, unpack

#: Precision of the lift: 2^STEPS > 2·bound² for numerators and denominators up to 2^19 or so.
STEPS = 40

WORD = np.uint64(64)
ONE = np.uint64(1)
ZERO = np.uint64(0)


def lift(node: Node, seed: int = 0, tries: int = 4) -> Scheme | None:
    """A scheme over the integers, or rationals with odd denominators, that is `node` modulo 2.

    Args:
        node: a node modulo 2.
        seed: orders the unknowns.
        tries: orders to try in search of small integers; the first that gives coefficients -1, 0
            and 1 ends the search.

    Returns:
        The lift with the smallest coefficients found, verified; None where no order gave one. (An
        unsolvable system proves that the node has no lift; a lift whose coefficients are
        irrational, or too long to recognise, is only a bad choice of the free ones.)
    """
    rng = np.random.default_rng(seed)
    best: Scheme | None = None
    for _ in range(tries):
        system = _Jacobian(node, rng)
        scheme = _lift_once(node.grid, system)
        if scheme is None:
            if not system.solvable:
                return None
            continue
        if best is None or _height(scheme) < _height(best):
            best = scheme
        if _height(best) == 1:
            break
    return best


def may_lift(node: Node) -> bool:
    """Whether a node modulo 2 is one modulo 4; false for most of those that have no lift.

    It takes 20 ms for ⟨3,5,5⟩, a hundredth of the walk that found the node.
    """
    system = _Jacobian(node, np.random.default_rng(0))
    missing = _matrix_product_tensor(node.grid) - _sum_of_products(list(system.start))
    return system.solve((missing >> 1) & 1) is not None


class _Jacobian:
    """The Brent equations of one node modulo 2, linearised and eliminated."""

    def __init__(self, node: Node, rng: np.random.Generator):
        self.start = tuple(x.astype(np.int64) for x in unpack(node))
        flat = np.concatenate([x.ravel() for x in self.start])
        order = rng.permutation(len(flat))
        self.order = order[np.argsort(flat[order] == 0, kind="stable")]
        equations = int(np.prod([x.shape[1] for x in self.start]))
        self.words = -(-equations // 64)
        rows = _jacobian_rows(*(x.astype(np.uint8) for x in self.start), self.order, self.words)
        self.rows, self.pivots = rows, _echelon(rows, self.words)
        self.solvable = True

    def solve(self, right: np.ndarray) -> list[np.ndarray] | None:
        """Corrections (0, 1) of U, V and W for a right-hand side modulo 2, or None."""
        target = np.zeros(self.rows.shape[1], np.uint64)
        target[: self.words] = _packed(right)
        if not _reduce(target, self.rows, self.pivots, self.words):
            self.solvable = False
            return None
        chosen = np.unpackbits(target[self.words :].view(np.uint8), bitorder="little")
        flat = np.zeros(len(self.order), np.int64)
        flat[self.order] = chosen[: len(self.order)]
        sizes = np.cumsum([x.size for x in self.start])[:-1]
        parts = np.split(flat, sizes)
        return [part.reshape(x.shape) for part, x in zip(parts, self.start, strict=True)]


def _lift_once(grid: Grid, system: _Jacobian) -> Scheme | None:
    factors = [x.copy() for x in system.start]
    wanted = _matrix_product_tensor(grid)
    for step in range(STEPS):
        # Arithmetic modulo 2^64, where int64 wraps around, is all that the next step needs.
        missing = wanted - _sum_of_products(factors)
        if not missing.any():
            return _verified(grid, [rational(x) for x in factors])
        corrections = system.solve((missing >> step) & 1)
        if corrections is None:
            return None
        for x, correction in zip(factors, corrections, strict=True):
            x += correction << step
            _balance(x, step + 1)
    return _reconstructed(grid, factors)


def _balance(x: np.ndarray, bits: int) -> None:
    """Representatives modulo 2^bits nearest to zero, in place; 2 modulo 4 stays 2."""
    x &= (1 << bits) - 1
    x -= (x > 1 << (bits - 1)).astype(np.int64) << bits


def _reconstructed(grid: Grid, factors: list[np.ndarray]) -> Scheme | None:
    matrices = []
    for x in factors:
        values = {int(v): rational_reconstruction(int(v), 1 << STEPS) for v in np.unique(x)}
        if None in values.values():
            return None
        matrices.append(rational([[values[int(v)] for v in row] for row in x]))
    return _verified(grid, matrices)


def rational_reconstruction(residue: int, modulus: int) -> Fraction | None:
    """The fraction p/q ≡ residue with |p|, q ≤ √(modulus/2), if there is one (P. Wang, 1981).

    >>> rational_reconstruction(pow(3, -1, 2**20) * 2, 2**20)
    Fraction(2, 3)
    """
    bound = isqrt(modulus // 2)
    r0, r1 = modulus, residue % modulus
    t0, t1 = 0, 1
    while r1 > bound:
        quotient = r0 // r1
        r0, r1 = r1, r0 - quotient * r1
        t0, t1 = t1, t0 - quotient * t1
    if t1 == 0 or abs(t1) > bound:
        return None
    return Fraction(r1, t1)


def _verified(grid: Grid, matrices: list) -> Scheme | None:
    try:
        return Scheme(*grid, *matrices)
    except TiercelValueError:  # a wrong guess of a fraction
        return None


def _height(scheme: Scheme) -> int:
    """Largest numerator or denominator."""
    matrices = scheme.U, scheme.V, scheme.W
    return max(max(int(np.abs(x.numerators).max()), x.denominator) for x in matrices)


def _matrix_product_tensor(grid: Grid) -> np.ndarray:
    m, k, n = grid
    tensor = np.zeros((m, k, k, n, m, n), np.int64)
    i, inner, j = (x.ravel() for x in np.indices(grid))
    tensor[i, inner, inner, j, i, j] = 1
    return tensor.reshape(m * k, k * n, m * n)


def _sum_of_products(factors: list[np.ndarray]) -> np.ndarray:
    u, v, w = factors
    left = (u.T[:, None, :] * v.T[None, :, :]).reshape(-1, len(u))
    return (left @ w).reshape(u.shape[1], v.shape[1], w.shape[1])


def _packed(bits: np.ndarray) -> np.ndarray:
    flat = bits.ravel().astype(np.uint8)
    padded = np.zeros(-(-len(flat) // 64) * 64, np.uint8)
    padded[: len(flat)] = flat
    return np.packbits(padded, bitorder="little").view(np.uint64)


@njit
def _jacobian_rows(u, v, w, order, words):
    """One row per unknown in `order`: its column of the Jacobian, then the unit vector."""
    rank, a_size = u.shape
    b_size, c_size = v.shape[1], w.shape[1]
    unknowns = len(order)
    rows = np.zeros((unknowns, words + (unknowns + 63) // 64), np.uint64)
    for index in range(unknowns):
        unknown = order[index]
        rows[index, words + index // 64] = ONE << np.uint64(index % 64)
        if unknown < rank * a_size:
            r, a = unknown // a_size, unknown % a_size
            for b in range(b_size):
                for c in range(c_size):
                    if v[r, b] & w[r, c]:
                        _set(rows[index], (a * b_size + b) * c_size + c)
        elif unknown < rank * (a_size + b_size):
            unknown -= rank * a_size
            r, b = unknown // b_size, unknown % b_size
            for a in range(a_size):
                for c in range(c_size):
                    if u[r, a] & w[r, c]:
                        _set(rows[index], (a * b_size + b) * c_size + c)
        else:
            unknown -= rank * (a_size + b_size)
            r, c = unknown // c_size, unknown % c_size
            for a in range(a_size):
                for b in range(b_size):
                    if u[r, a] & v[r, b]:
                        _set(rows[index], (a * b_size + b) * c_size + c)
    return rows


@njit
def _set(row, bit):
    row[bit // 64] |= ONE << np.uint64(bit % 64)


@njit
def _lowest(word):
    place = 0
    while not (word >> np.uint64(place)) & ONE:
        place += 1
    return place


@njit
def _reduce(row, rows, pivots, words):
    """Subtract pivot rows until no equation is left (True) or one that no row leads in."""
    for at in range(words):
        while row[at] != ZERO:
            bit = 64 * at + _lowest(row[at])
            pivot = pivots[bit]
            if pivot < 0:
                return False
            for i in range(at, len(row)):
                row[i] ^= rows[pivot, i]
    return True


@njit
def _echelon(rows, words):
    """Reduce each row by those before it; which row leads in each equation, or -1."""
    pivots = np.full(64 * words, -1, np.int64)
    for index in range(len(rows)):
        if not _reduce(rows[index], rows, pivots, words):
            for at in range(words):
                if rows[index, at] != ZERO:
                    pivots[64 * at + _lowest(rows[index, at])] = index
                    break
    return pivots
