"""Activations on vectors: relu, gelu (exact and tanh form) and silu.

The last three are x·S(x) with a sigmoid S, S(−x) = 1 − S(x). All are computed as

    x·S(x) = max(x, 0) − |x|·S(−|x|)

where the tail S(−|x|) ≤ 1/2 is found accurately relative to its own size. Nothing cancels: for
x < 0 the tail is the result, down to the smallest subnormal; for x > 0 it is a correction.
Beyond a finite |x| it is 0, so that infinities need no case of their own: +∞ gives +∞, −∞ gives the
limit −0 (relu: 0), NaN gives NaN.
"""

from __future__ import annotations

from tiercel.targets.cpu.codegen.emit import Function
from tiercel.targets.cpu.codegen.normal_tail import normal_tail
from tiercel.targets.cpu.codegen.values import F32, F64, Val
from tiercel.targets.cpu.codegen.vectormath import exp, two_product, two_sum

# |x| from which |x|·S(−|x|) rounds to 0; larger |x| are taken for it and cannot overflow.
VANISHES = {
    "gelu": {F32: 14.5, F64: 39.0},
    "gelu_tanh": {F32: 11.0, F64: 22.0},
    "silu": {F32: 110.0, F64: 760.0},
}

# gelu_tanh is x·σ(2u), 2u = x·(c₀ + c₁x²), c₀ = 2√(2/π), c₁ = 0.044715·c₀; each as (high, low).
TANH_C0 = {
    F32: (1.5957691669464111, -4.534068e-08),
    F64: (1.5957691216057308, -9.96930880911092e-17),
}
TANH_C1 = {
    F32: (0.07135481387376785, 2.3988325e-09),
    F64: (0.07135481627260025, -6.175149918155315e-19),
}


def emit(f: Function, name: str, x: Val) -> Val:
    """Activation ``name`` of a float32 or float64 vector, lane by lane.

    ``name``: "relu", "gelu" (x·Φ(x)), "gelu_tanh" (its tanh approximation) or "silu" (x·σ(x)).
    Relative error of a few units in the last place for every finite x.
    """
    positive = f.select(x < 0.0, 0.0, x)  # false for NaN, which therefore stays
    if name == "relu":
        return positive
    size, end = f.intrinsic("fabs", x), VANISHES[name][x.element]
    size = f.select(size > end, end, size)
    tail, power = _TAILS[name](f, size)
    return f.fma(-(size * tail), power, positive)


def _silu_tail(f: Function, a: Val) -> tuple[Val, Val]:
    return _logistic_tail(f, *exp(f, -a))


def _gelu_tanh_tail(f: Function, a: Val) -> tuple[Val, Val]:
    """σ(−2u). Both parts of 2u are kept: e^(−2u) multiplies a relative error of 2u by 2u."""
    c0, c0_low = (f.const(a.type, -c) for c in TANH_C0[a.element])
    c1, c1_low = (f.const(a.type, -c) for c in TANH_C1[a.element])
    square, square_low = two_product(f, a, a)
    cubic, cubic_low = two_product(f, square, c1)
    cubic_low = f.fma(square_low, c1, f.fma(square, c1_low, cubic_low))
    factor, factor_low = two_sum(c0, cubic)
    factor_low = factor_low + (cubic_low + c0_low)
    high, low = two_product(f, a, factor)
    return _logistic_tail(f, *exp(f, high, f.fma(a, factor_low, low)))


def _logistic_tail(f: Function, fraction: Val, power: Val) -> tuple[Val, Val]:
    """σ(−z) = e^(−z) / (1 + e^(−z)) from e^(−z) = fraction·power, as such a pair."""
    return fraction / f.fma(fraction, power, f.const(power.type, 1.0)), power


_TAILS = {"gelu": normal_tail, "gelu_tanh": _gelu_tanh_tail, "silu": _silu_tail}
