"""Vector arithmetic beyond one instruction: exact products and sums, polynomials, exp.

No library is called and no table is read: everything is additions, multiplications and bit fields,
so each function becomes a straight run of vector instructions on every instruction set. Where a
result depends on rounding errors, a number is held as an unevaluated sum (high, low) of two floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from tiercel.targets.cpu.codegen.emit import Function
from tiercel.targets.cpu.codegen.values import F32, F64, I32, I64, Val


@dataclass(frozen=True)
class Format:
    """One IEEE float type: its layout in bits and what :func:`exp` needs of it.

    ``ln2`` is ln 2 as (high, low); the high part is so short that its product with any exponent is
    exact. ``exp`` are the coefficients cⱼ, lowest first, of Σ cⱼ rʲ ≈ (eʳ − 1 − r)/r² for
    |r| ≤ ln 2 / 2. With mpmath at 40 digits they are, n = 5 and 10 of them::

        chebyfit(lambda r: hyp1f1(1, 3, r) / 2, [-log(2) / 2, log(2) / 2], n)

    which leaves a relative error of eʳ of 1.0e-8 and 1.7e-17.
    """

    integer: ir.Type
    mantissa: int
    bias: int
    ln2: tuple[float, float]
    exp: tuple[float, ...]


FORMATS = {
    F32: Format(
        I32, 23, 127,
        (0.693145751953125, 1.4286068e-06),
        (0.5, 0.16666578, 0.041666556, 0.008363173, 0.0013926176),
    ),
    F64: Format(
        I64, 52, 1023,
        (0.6931471805598903, 5.497923018708371e-14),
        (
            0.5000000000000001, 0.16666666666666669, 0.041666666666624164,
            0.008333333333330065, 0.0013888888917196719, 0.00019841269863040545,
            2.4801521322368692e-05, 2.7557268480310024e-06, 2.7620075879983367e-07,
            2.5100375832561234e-08,
        ),
    ),
}  # fmt: skip
LOG2_E = 1.4426950408889634


def two_product(f: Function, x: Val, y: Val) -> tuple[Val, Val]:
    """x·y as (rounded, rounding error); exact unless the error underflows."""
    high = x * y
    return high, f.fma(x, y, -high)


def two_sum(x: Val, y: Val) -> tuple[Val, Val]:
    """x + y as (rounded, rounding error), exact (Knuth, TAOCP vol. 2, 4.2.2, theorem B)."""
    high = x + y
    from_y = high - x
    return high, (x - (high - from_y)) + (y - from_y)


def polynomial(f: Function, x: Val, coefficients: Sequence[float]) -> Val:
    """Σ coefficients[j]·xʲ, even and odd powers apart: half the latency of one Horner chain."""
    square = x * x
    even, odd = (_horner(f, square, coefficients[start::2]) for start in (0, 1))
    return f.fma(odd, x, even)


def _horner(f: Function, x: Val, coefficients: Sequence[float]) -> Val:
    *rest, last = coefficients
    total = f.const(x.type, last)
    for coefficient in reversed(rest):
        total = f.fma(total, x, f.const(x.type, coefficient))
    return total


def exp(f: Function, x: Val, low: Val | None = None) -> tuple[Val, Val]:
    """e^(x + low) as a pair (fraction, power) whose product it is; power is a power of two.

    The pair is within one unit in the last place for a vector x with |x| ≤ 170 (float32) or 1400
    (float64). Neither half under- or overflows there, so a caller that multiplies by ``power`` last
    keeps full accuracy down to where its own result is subnormal. NaN gives NaN.
    """
    form = FORMATS[x.element]
    # Adding 1.5·2^mantissa rounds to an integer and leaves it in the low bits of the sum.
    magic = f.const(x.type, 1.5 * 2.0**form.mantissa)
    shifted = f.fma(x, f.const(x.type, LOG2_E), magic)
    count = shifted - magic
    r = f.fma(count, f.const(x.type, -form.ln2[0]), x)
    r = f.fma(count, f.const(x.type, -form.ln2[1]), r)
    if low is not None:
        r = r + low
    fraction = f.fma(r * r, polynomial(f, r, form.exp), r) + 1.0

    # 2^count in two factors, since count alone may be below the smallest exponent. Twice the bias
    # is added first: both halves are then biased exponents, and positive.
    integer = x.like(form.integer)
    exponent = f.cast(shifted, integer, "bitcast") - f.cast(magic, integer, "bitcast")
    exponent = exponent + 2 * form.bias
    half = exponent.shift_right(1)
    first, second = (
        f.cast(part << form.mantissa, x.type, "bitcast") for part in (half, exponent - half)
    )
    return fraction * first, second
