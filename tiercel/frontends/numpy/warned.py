"""Whether NumPy might warn of a product that an own kernel has computed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tiercel.targets.cpu import exceptions

_FLOAT16 = np.dtype(np.float16)


def may_warn(out: NDArray) -> bool:
    """Whether the product in ``out`` has overflowed, or has made NaN of something else.

    As NumPy does, this looks for exceptions of the calling thread. NumPy multiplies float16 on that
    thread alone, where the own kernels have several: of float16 the result tells.
    """
    if out.dtype == _FLOAT16:
        # Of one sign, float16 are in the order of their bits, and Inf and NaN are the largest.
        bits = out.view(np.int16)
        return bool(bits.max() >= _INF or bits.view(np.uint16).max() >= _INF | _SIGN)
    return exceptions.raised() and not np.isfinite(out).all()


_INF, _SIGN = 0x7C00, 0x8000
