"""Predicted error growth of a scheme on a GPU over the classical product of the same dtype.

float32, float64 and complex operands are added in their own dtype: growth is √(Φ / mkn) for each
level, and Gauss's factor for complex ones (``planner/accuracy.py``).

16-bit operands are added into float16 planes and multiplied into float32: only the planes' rounding
grows, and the result is rounded once, as the vendor's is. Relative to the RMS of C, rounding the
planes of both operands of normal data costs 1.16 · 2⁻¹² in float16, half of that in bfloat16, whose
sums have fewer bits to lose; the result's rounding costs 1.66e-3 in bfloat16 and 2.07e-4 in
float16. Errors of independent roundings add in squares. Measured on an H200:

    Winograd's (√(Φ / mkn) = 2.65)   bfloat16 1.021 to 1.027, predicted 1.023   float16 3.7, 3.7
    ⟨4,2,4;26⟩ (2.95)                bfloat16 1.035 to 1.043, predicted 1.029   float16 4.2, 4.2

TF32 operands have float32 planes, of which 11 bits are multiplied: that is all of the error, as it
is of the classical product. Measured 2.26 for Winograd's, 2.73 for ⟨4,2,4;26⟩.
"""

from __future__ import annotations

import math

from tiercel.planner.accuracy import GAUSS_GROWTH
from tiercel.planner.accuracy import growth as scheme_growth
from tiercel.planner.gpu.variants import Variant

#: Relative RMS error of rounding the planes of both operands, by their dtype.
PLANES = {"bfloat16": 0.56 * 2.0**-12, "float16": 1.16 * 2.0**-12}

#: Relative RMS error of rounding a result of normal data to the dtype.
RESULT = {"bfloat16": 1.66e-3, "float16": 2.07e-4}


def growth(variant: Variant, dtype: str) -> float:
    """RMS error over the classical product's; 1.0 for all classical variants.

    >>> from tiercel.planner.gpu.variants import named
    >>> growth(named("strassen2"), "float32")
    4.0
    >>> round(growth(named("winograd"), "bfloat16"), 3)
    1.023
    """
    if not variant.schemes:
        return 1.0
    levels = math.prod(scheme_growth(scheme, False) for scheme in variant.schemes)
    if dtype in RESULT:
        return math.hypot(1.0, PLANES[dtype] * levels / RESULT[dtype])
    return levels * (GAUSS_GROWTH if dtype.startswith("complex") else 1.0)
