"""Scheme → program: what to multiply, add and keep, block by block.

A :class:`Program` is target-neutral. Its blocks are those of the scheme's grid (row-major); for
complex operands each block exists twice, as a real and an imaginary *plane*. Every product sums
some blocks of A, sums some blocks of B, multiplies, and adds multiples of the result to some blocks
of C. The first product that touches a block of C overwrites it: C is never cleared.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tiercel.schemes import Scheme

Term = tuple[int, float]  # block number, coefficient


@dataclass(frozen=True)
class Product:
    """One product of block sums. ``first[i]`` says that ``c[i]`` overwrites its block."""

    a: tuple[Term, ...]
    b: tuple[Term, ...]
    c: tuple[Term, ...]
    first: tuple[bool, ...]


@dataclass(frozen=True, eq=False)  # compared by identity: ``lower`` makes each one once
class Program:
    """Products over an m × k × n grid of blocks in 1 (real) or 2 (complex) planes.

    Block numbers: A ``(plane·m + i)·k + l``, B ``(plane·k + l)·n + j``, C ``(plane·m + i)·n + j``.
    """

    name: str
    m: int
    k: int
    n: int
    planes: int
    products: tuple[Product, ...]

    @property
    def plain(self) -> bool:
        """True for the classical product: one block, no additions."""
        return (self.m, self.k, self.n, self.planes) == (1, 1, 1, 1)

    @property
    def share(self) -> float:
        """Real multiplications over those of the classical product: R / mkn (complex: R / 4mkn)."""
        return len(self.products) / (self.m * self.k * self.n * self.planes**2)

    @cached_property
    def _lengths(self) -> dict[str, list[int]]:
        return {x: [len(getattr(p, x)) for p in self.products] for x in "abc"}

    def terms(self, operand: str) -> int:
        """Number of block terms of operand ``"a"``, ``"b"`` or ``"c"`` over all products."""
        return sum(self._lengths[operand])

    def widest(self, operand: str) -> int:
        """Most block terms of operand ``"a"``, ``"b"`` or ``"c"`` in one product."""
        return max(self._lengths[operand])

    def __str__(self) -> str:
        lines = [f"{self.name}: {len(self.products)} products, grid {self.m}×{self.k}×{self.n}"]
        for r, p in enumerate(self.products):
            a, b = sum_text("A", p.a), sum_text("B", p.b)
            c = ", ".join(
                _update_text(block, coef, first, r)
                for (block, coef), first in zip(p.c, p.first, strict=True)
            )
            lines.append(f"  P{r} = ({a}) · ({b})    {c}")
        return "\n".join(lines)


def factor_text(coef: float) -> str:
    """A coefficient in front of what it multiplies: "" for 1.

    >>> factor_text(1.0), factor_text(-1.0), factor_text(0.5)
    ('', '−', '0.5·')
    """
    return {1.0: "", -1.0: "−"}.get(coef, f"{coef:g}·")


def sum_text(letter: str, terms: Iterable[Term]) -> str:
    """A sum of blocks.

    >>> sum_text("A", ((0, 1.0), (3, -1.0)))
    'A0 − A3'
    """
    text = " + ".join(f"{factor_text(coef)}{letter}{block}" for block, coef in terms)
    return text.replace("+ −", "− ")


def _update_text(block: int, coef: float, first: bool, r: int) -> str:
    if first or coef > 0:
        return f"C{block} {'=' if first else '+='} {factor_text(coef)}P{r}"
    return f"C{block} -= {factor_text(-coef)}P{r}"


@lru_cache(maxsize=256)
def lower(scheme: Scheme | None, *, is_complex: bool = False) -> Program:
    """The program of ``scheme`` (``None``: the classical product).

    Complex products use three real ones (Gauss): with A = Ar + i·Ai and B = Br + i·Bi,
    P1 = (Ar + Ai)·Br, P2 = Ar·(Bi − Br), P3 = Ai·(Br + Bi); Cr = P1 − P3, Ci = P1 + P2. Each of
    the three runs through the scheme, so a scheme of rank R needs 3R real products.

    >>> print(lower(None))
    classical: 1 products, grid 1×1×1
      P0 = (A0) · (B0)    C0 = P0
    """
    if scheme is None:
        name, (m, k, n), factors = "classical", (1, 1, 1), [np.ones((1, 1))] * 3
    else:
        name, (m, k, n) = scheme.name, scheme.grid
        factors = [x.floats() for x in (scheme.U, scheme.V, scheme.W)]
    u, v, w = factors
    planes = 1
    if is_complex:
        planes = 2
        u, v, w = (np.kron(np.array(gauss), x) for gauss, x in zip(GAUSS, (u, v, w), strict=True))
        name += "+3m"
    u, v, w = _normalised(u, v, w)
    return Program(name, m, k, n, planes, tuple(_products(u, v, w)))


# Rows: products P1, P2, P3; columns: real and imaginary plane.
GAUSS = ([[1, 1], [1, 0], [0, 1]], [[1, 0], [-1, 1], [1, 1]], [[1, 1], [0, 1], [-1, 0]])


def _normalised(u: np.ndarray, v: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, ...]:
    """Leading coefficient of every operand sum +1 (moved to W): a plain block needs no scaling."""
    u, v, w = u.copy(), v.copy(), w.copy()
    for r in range(len(u)):
        for factor in (u, v):
            lead = factor[r][np.flatnonzero(factor[r])[0]]
            factor[r] /= lead
            w[r] *= lead
    return u, v, w


def _products(u: np.ndarray, v: np.ndarray, w: np.ndarray) -> Iterable[Product]:
    touched: set[int] = set()
    for r in range(len(u)):
        c = _terms(w[r])
        first = tuple(block not in touched for block, _ in c)
        touched.update(block for block, _ in c)
        yield Product(_terms(u[r]), _terms(v[r]), c, first)


def _terms(row: np.ndarray) -> tuple[Term, ...]:
    return tuple((int(i), float(row[i])) for i in np.flatnonzero(row))


def run(program: Program, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Execute a program in NumPy: the oracle of every compiled target.

    ``a`` (M, K) and ``b`` (K, N) with sizes divisible by the grid; the result (M, N) has their
    dtype, so integer inputs are checked exactly.
    """
    a_blocks = _split(a, program.m, program.k, program.planes)
    b_blocks = _split(b, program.k, program.n, program.planes)
    c_blocks: dict[int, np.ndarray] = {}
    exact = np.issubdtype(a_blocks[0].dtype, np.integer)

    def scaled(coef: float, x: np.ndarray) -> np.ndarray:
        return (int(coef) if exact else x.dtype.type(coef)) * x

    def summed(blocks: list[np.ndarray], terms: tuple[Term, ...]) -> np.ndarray:
        return reduce(np.add, (scaled(coef, blocks[i]) for i, coef in terms))

    for p in program.products:
        product = summed(a_blocks, p.a) @ summed(b_blocks, p.b)
        for (block, coef), first in zip(p.c, p.first, strict=True):
            term = scaled(coef, product)
            c_blocks[block] = term if first else c_blocks[block] + term
    return _join(c_blocks, program)


def _split(x: np.ndarray, rows: int, cols: int, planes: int) -> list[np.ndarray]:
    parts = [np.real(x), np.imag(x)] if planes == 2 else [x]
    return [
        block
        for part in parts
        for band in np.split(part, rows, axis=0)
        for block in np.split(band, cols, axis=1)
    ]


def _join(blocks: dict[int, np.ndarray], program: Program) -> np.ndarray:
    count = program.m * program.n
    planes = [
        np.block(
            [
                [blocks[plane * count + i * program.n + j] for j in range(program.n)]
                for i in range(program.m)
            ]
        )
        for plane in range(program.planes)
    ]
    return planes[0] if len(planes) == 1 else planes[0] + 1j * planes[1]
