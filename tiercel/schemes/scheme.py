"""The scheme type: a bilinear algorithm ⟨m,k,n;R⟩ that multiplies matrices with R products."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from operator import index
from typing import Any

from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.schemes.brent import verify
from tiercel.schemes.rational import RationalMatrix, rational


@dataclass(frozen=True, eq=False, repr=False)
class Scheme:
    """An exact ⟨m,k,n;R⟩ matrix multiplication scheme, proven correct when it is built.

    With A cut into an m × k grid, B into k × n and C into m × n, product r is

        p_r = (Σ U[r, i·k+l] A_il) · (Σ V[r, l·n+j] B_lj),     C_ij = Σ_r W[r, i·n+j] p_r.

    Grid entries are row-major and C is not transposed. The entries may be blocks: no product
    assumes that multiplication commutes.

    Args:
        m: rows of A and C.
        k: columns of A, rows of B.
        n: columns of B and C.
        U: (R, m·k) coefficients: anything that
            [rational][tiercel.schemes.rational.rational] reads, kept as a `RationalMatrix`.
        V: (R, k·n) coefficients.
        W: (R, m·n) coefficients.
        name: what people call it; not part of its identity.
        provenance: where it comes from; not part of its identity.

    Raises:
        TiercelValueError: a shape that does not fit the grid, or a violated Brent equation, named.
        TiercelTypeError: a coefficient that is not a number.

    >>> Scheme(1, 1, 2, U=[[1], [1]], V=[[1, 0], [0, 1]], W=[[1, 0], [0, 1]])
    Scheme(<1,1,2;2>)
    """

    m: int
    k: int
    n: int
    U: RationalMatrix
    V: RationalMatrix
    W: RationalMatrix
    name: str = ""
    provenance: str = ""

    def __post_init__(self) -> None:
        for letter in "mkn":
            object.__setattr__(self, letter, _grid_size(letter, getattr(self, letter)))
        for letter in "UVW":
            object.__setattr__(self, letter, rational(getattr(self, letter)))
        self._check_shapes()
        verify(self.grid, self.U, self.V, self.W)

    def _check_shapes(self) -> None:
        rank = self.U.shape[0]
        wanted = {
            "U": (rank, self.m * self.k),
            "V": (rank, self.k * self.n),
            "W": (rank, self.m * self.n),
        }
        for letter, shape in wanted.items():
            got = getattr(self, letter).shape
            if got != shape:
                raise TiercelValueError(
                    f"coefficients of a <{self.m},{self.k},{self.n}> scheme with {rank} products: "
                    f"{letter} has shape {got}, expected {shape}; give one row per product"
                )

    @property
    def grid(self) -> tuple[int, int, int]:
        """(m, k, n)."""
        return self.m, self.k, self.n

    @property
    def rank(self) -> int:
        """Number of products, R."""
        return self.U.shape[0]

    @property
    def saving(self) -> float:
        """Classical products over products, m·k·n / R: the speed-up if additions were free."""
        return self.m * self.k * self.n / self.rank

    @cached_property
    def nonzeros(self) -> tuple[int, int, int]:
        """Number of non-zero coefficients of (U, V, W)."""
        return self.U.nonzeros, self.V.nonzeros, self.W.nonzeros

    @property
    def additions(self) -> int:
        """Block additions of one application when no partial sum is shared.

        >>> from tiercel.schemes import get
        >>> get("strassen").additions
        18
        """
        u, v, w = self.nonzeros
        return (u - self.rank) + (v - self.rank) + (w - self.m * self.n)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Scheme):
            return NotImplemented
        return self._content == other._content

    def __hash__(self) -> int:
        return hash(self._content)

    @property
    def _content(self) -> tuple[Any, ...]:
        return self.grid, self.U, self.V, self.W

    def __str__(self) -> str:
        return f"<{self.m},{self.k},{self.n};{self.rank}> {self.name}".rstrip()

    def __repr__(self) -> str:
        return f"Scheme({self})"


def _grid_size(letter: str, size: Any) -> int:
    try:
        value = index(size)
    except TypeError:
        raise TiercelTypeError(
            f"grid size {letter} must be an integer: got {size!r} of type {type(size).__name__}"
        ) from None
    if value < 1:
        raise TiercelValueError(f"grid size {letter} must be at least 1: got {value}")
    return value
