"""The upper tail of the normal distribution, as GELU needs it: accurate relative to its own size.

Φ(−a) = e^(−a²/2) R(a) with R(a) = e^(a²/2) erfc(a/√2) / 2, which falls slowly from 1/2 like 0.4/a.
The map t = (a − k)/(a + k) turns the long range of a into less than [−1, 1], where (a + k)·R(a) is
nearly a straight line: one polynomial covers all of it (the idea of M. M. Shepherd and
J. G. Laframboise, "Chebyshev approximation of (1 + 2x) exp(x²) erfc x", Math. Comp. 36, 1981).
"""

from __future__ import annotations

from dataclasses import dataclass

from tiercel.targets.cpu.codegen.emit import Function
from tiercel.targets.cpu.codegen.values import F32, F64, Val
from tiercel.targets.cpu.codegen.vectormath import exp, polynomial, two_product


@dataclass(frozen=True)
class Fit:
    """Coefficients cⱼ, lowest first, of Σ cⱼ tʲ ≈ (a + k)·R(a) for 0 ≤ a ≤ 15 or 39.

    With mpmath at 40 digits, for end = 15 and n = 10 (float32), end = 39 and n = 22 (float64)::

        def scaled(t):
            a = k * (1 + t) / (1 - t)
            return (a + k) * exp(a * a / 2) * erfc(a / sqrt(2)) / 2

        chebyfit(scaled, [-1, (end - k) / (end + k)], n)

    Relative errors: 1.3e-8 and 3.7e-17.
    """

    k: float
    coefficients: tuple[float, ...]


FITS = {
    F32: Fit(
        4.0,
        (
            0.75528514, -0.60789657, 0.3871367, -0.1865233, 0.060406186, -0.0075254026,
            -0.0035209728, 0.0015668817, 0.00018899652, -0.00012555839,
        ),
    ),
    F64: Fit(
        5.0,
        (
            0.769193049750063, -0.6653825028900567, 0.49530561596997413, -0.3135331566712971,
            0.1650203661705007, -0.06911863870647982, 0.020795066797569855,
            -0.002993376769094473, -0.0007978693748911934, 0.000544899062695852,
            -5.937586616736071e-05, -4.9762853165030135e-05, 1.668170360977268e-05,
            3.981182741532577e-06, -2.7703209441469523e-06, -3.374965203524632e-07,
            4.3443907263764586e-07, 4.375841598285575e-08, -6.667529339227571e-08,
            -1.0618274174239376e-08, 7.630410417873182e-09, 2.224938767716443e-09,
        ),
    ),
}  # fmt: skip


def normal_tail(f: Function, a: Val) -> tuple[Val, Val]:
    """Φ(−a), a vector with 0 ≤ a ≤ 15 (float32) or 39 (float64), as (fraction, power of two).

    The relative error stays within a few units in the last place however small the tail: the
    rounding error of a², which e^(−a²/2) would multiply by a²/2, goes into the exponent as well.
    """
    fit = FITS[a.element]
    square, error = two_product(f, a, a)
    fraction, power = exp(f, square * -0.5, error * -0.5)
    inverse = f.const(a.type, 1.0) / (a + fit.k)
    t = f.fma(inverse, f.const(a.type, -2.0 * fit.k), f.const(a.type, 1.0))
    return polynomial(f, t, fit.coefficients) * inverse * fraction, power
