"""How much a scheme amplifies rounding errors, from its coefficients alone.

u_r, v_r, w_r are row r of U, V, W; `levels` are the schemes of the recursion, outermost first.
All figures are norm-wise: they speak of an error against ‖A‖·‖B‖, not against each entry of C.

Source of E and Q: G. Ballard, A. R. Benson, A. Druinsky, B. Lipshitz, O. Schwartz, *Improving the
numerical stability of fast matrix multiplication*, SIAM J. Matrix Anal. Appl. 37 (2016). Φ sums the
squares of what the growth factor of J.-G. Dumas, C. Pernet, A. Sedoglavic, *Strassen's algorithm is
not optimally accurate*, ISSAC 2024, sums.
"""

from __future__ import annotations

from fractions import Fraction
from math import prod, sqrt

import numpy as np

from tiercel.schemes.rational import RationalMatrix
from tiercel.schemes.scheme import Scheme


def phi(scheme: Scheme) -> Fraction:
    """Φ = Σ_r ‖u_r‖² ‖v_r‖² ‖w_r‖², exactly; multiplicative under `tensor`.

    The classical scheme has Φ = m·k·n. Signs, scales and order of products do not change it.

    >>> from tiercel.schemes import get
    >>> [float(phi(get(name))) for name in ("strassen", "winograd", "accurate")]
    [32.0, 56.0, 22.6484375]
    """
    matrices = scheme.U, scheme.V, scheme.W
    # Python integers, for the squares of int64 do not fit int64.
    squares = [(x.numerators.astype(object) ** 2).sum(axis=1) for x in matrices]
    total = (squares[0] * squares[1] * squares[2]).sum()
    return Fraction(total, prod(x.denominator for x in matrices) ** 2)


def rms_growth(*levels: Scheme) -> float:
    """Expected RMS error over the classical product's: Π √(Φ / (m·k·n)) over the levels.

    Assumes entries of A and B that are independent with equal variance, combined operands that
    are rounded once to the operand dtype, and rounding errors that are independent. Then each
    product carries an error of variance proportional to ‖u_r‖² ‖v_r‖², and C_ij collects
    Σ_r w² of it; the mean over i, j is Φ / (m·n) against k for the classical scheme.

    >>> from tiercel.schemes import get
    >>> rms_growth(get("strassen")), rms_growth(get("strassen"), get("strassen"))
    (2.0, 4.0)
    """
    return sqrt(prod((phi(x) / prod(x.grid) for x in levels), start=Fraction(1)))


def stability_factor(scheme: Scheme) -> Fraction:
    """E = max_c Σ_r |w_rc| ‖u_r‖₁ ‖v_r‖₁ (Ballard et al. 2016); multiplicative under `tensor`.

    The classical scheme has E = k; Strassen's has 12 and Winograd's 18.

    >>> from tiercel.schemes import get, classical
    >>> [int(stability_factor(x)) for x in (get("strassen"), get("winograd"), classical(2, 3, 4))]
    [12, 18, 3]
    """
    weights = _absolute_sums(scheme.U) * _absolute_sums(scheme.V)
    largest = max((weights @ np.abs(scheme.W.numerators.astype(object))).tolist())
    return Fraction(largest, scheme.U.denominator * scheme.V.denominator * scheme.W.denominator)


def prefactor(scheme: Scheme) -> int:
    """Q = max_c (nnz(w_c) + max of nnz(u_r) + nnz(v_r) over the products r in c).

    It counts the roundings on the longest path from the operands to an entry of C, without those
    inside the products (Ballard et al. 2016).
    """
    operands = np.count_nonzero(scheme.U.numerators, axis=1) + np.count_nonzero(
        scheme.V.numerators, axis=1
    )
    used = scheme.W.numerators != 0
    return int((used.sum(axis=0) + (used * operands[:, None]).max(axis=0)).max())


def error_bound(k_size: int, *levels: Scheme) -> float:
    """f in the worst-case bound max|Ĉ - C| ≤ f · ε · max|A| · max|B| + O(ε²).

    With K₀ = K / Π k, the inner dimension that the recursion leaves to a classical product,
    f = K₀ · (K₀ + Σ Q) · Π E: magnitudes grow by E per level, and an entry of C sees K₀ roundings
    in a product and Q per level outside (Ballard et al. 2016). No level gives the classical K².

    Args:
        k_size: K, the inner dimension.
        levels: schemes of the recursion, outermost first.

    >>> from tiercel.schemes import get
    >>> error_bound(1024) / 1024**2, error_bound(1024, get("strassen")) / 1024**2
    (1.0, 3.046875)
    """
    base = Fraction(k_size, prod(x.k for x in levels))
    roundings = base + sum(prefactor(x) for x in levels)
    return float(base * roundings * prod(map(stability_factor, levels), start=Fraction(1)))


def worst_case_growth(*levels: Scheme) -> float:
    """Worst-case bound over that of the classical scheme on the same blocks: Π E / k.

    >>> from tiercel.schemes import get
    >>> worst_case_growth(get("strassen"))
    6.0
    """
    return float(prod((stability_factor(x) / x.k for x in levels), start=Fraction(1)))


def _absolute_sums(matrix: RationalMatrix) -> np.ndarray:
    """‖row‖₁ times the denominator, as Python integers: their products may exceed int64."""
    return np.abs(matrix.numerators.astype(object)).sum(axis=1)
