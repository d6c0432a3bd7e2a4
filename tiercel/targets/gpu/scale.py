"""Power-of-two scaling of 16-bit operands, so that sums of blocks fit float16.

float16 has three more bits than bfloat16 at the same tensor-core rate, and a narrow range. The
scale of an operand is chosen on the device from its largest magnitude; it is exact, and undone when
products become blocks of C.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, log2

import triton
import triton.language as tl

from tiercel.lower.program import Program


@lru_cache(maxsize=256)
def growth_bits(program: Program, operand: str) -> int:
    """log₂, rounded up, of the most that a sum can exceed the largest element.

    >>> from tiercel.schemes import get
    >>> from tiercel.lower.program import lower
    >>> growth_bits(lower(get("strassen")), "a"), growth_bits(lower(get("winograd2")), "a")
    (1, 4)
    """
    largest = max(sum(abs(coef) for _, coef in getattr(p, operand)) for p in program.products)
    return ceil(log2(largest))


@triton.jit
def power_of_two(largest, growth_bits, SIGN: tl.constexpr):
    """The scale (``SIGN`` −1: its inverse) for an operand whose largest float32 has these bits.

    Sums stay below 2¹⁵. Exponents under −100 count as −100, so that the scale is finite.
    """
    exponent = tl.maximum((tl.load(largest) >> 23) - 127, -100)
    bits = 127 + SIGN * (14 - growth_bits - exponent)
    return (bits << 23).to(tl.float32, bitcast=True)
