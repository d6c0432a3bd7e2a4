"""Published marks: what a catalogue of schemes is held against.

The ranks are facts of the literature: J. D. Laderman 1976 (⟨3,3,3⟩), J. E. Hopcroft and L. R. Kerr
1971 (⟨2,n,p⟩), A. V. Smirnov 2013 (⟨3,3,n⟩ and others), A. Fawzi et al. 2022 and A. Novikov et al.
2025 (AlphaTensor, AlphaEvolve), M. Kauers and J. Moosbauer 2022, J. Moosbauer and M. Poole 2025
(⟨5,5,5;93⟩). Φ, E, non-zeros and additions are those of the schemes in A. I. Perminov's collection
*FastMatrixMultiplication* (2026), whose coefficients are -1, 0 and 1; each was recomputed from the
coefficients, which are not part of this package.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mark:
    """Best published figures for one grid; each may belong to another scheme.

    Args:
        rank: with coefficients -1, 0, 1, and the same with any integers.
        rational_rank: with rational coefficients.
        phi: least Φ at `rank`.
        stability: least E at `rank`.
        nonzeros: fewest non-zero coefficients at `rank`.
        additions: fewest additions with shared sums at `rank`.
    """

    rank: int
    rational_rank: int
    phi: float
    stability: int
    nonzeros: int
    additions: int


MARKS = {
    (2, 2, 2): Mark(7, 7, 32, 12, 36, 15),
    (2, 2, 3): Mark(11, 11, 36, 12, 48, 20),
    (2, 2, 4): Mark(14, 14, 64, 12, 72, 31),
    (2, 2, 5): Mark(18, 18, 68, 12, 84, 33),
    (2, 3, 3): Mark(15, 15, 114, 23, 94, 46),
    (2, 3, 4): Mark(20, 20, 184, 43, 130, 58),
    (2, 3, 5): Mark(25, 25, 246, 51, 166, 71),
    (2, 4, 4): Mark(26, 26, 278, 58, 182, 92),
    (2, 4, 5): Mark(33, 32, 546, 90, 260, 112),
    (2, 5, 5): Mark(40, 40, 474, 65, 298, 153),
    (3, 3, 3): Mark(23, 23, 163, 31, 139, 58),
    (3, 3, 4): Mark(29, 29, 298, 51, 204, 92),
    (3, 3, 5): Mark(36, 36, 465, 55, 265, 123),
    (3, 4, 4): Mark(38, 38, 416, 52, 280, 133),
    (3, 4, 5): Mark(47, 47, 684, 68, 386, 161),
    (3, 5, 5): Mark(58, 58, 883, 113, 482, 221),
    (4, 4, 4): Mark(49, 48, 1024, 128, 432, 159),
    (4, 4, 5): Mark(61, 61, 1588, 118, 594, 233),
    (4, 5, 5): Mark(76, 76, 1340, 93, 700, 299),
    (5, 5, 5): Mark(93, 93, 3281, 413, 1054, 383),
}


def mark(grid: tuple[int, int, int]) -> Mark | None:
    """The published figures of a grid in any order; None beyond size 5.

    >>> mark((4, 3, 3)).rank
    29
    """
    m, k, n = sorted(grid)
    return MARKS.get((m, k, n))
