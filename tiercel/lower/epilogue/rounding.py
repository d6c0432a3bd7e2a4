"""Rounding of float64 arrays to the narrower formats that an epilogue may cast to."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Format:
    """A binary format: significant bits, exponent of the smallest normal number, largest number.

    ``saturates``: numbers beyond the largest become the largest instead of infinity, as the
    conversion instructions of 8-bit formats do.
    """

    bits: int
    least_exponent: int
    largest: float
    saturates: bool = False


FORMATS = {
    "float32": Format(24, -126, (2 - 2.0**-23) * 2.0**127),
    "float16": Format(11, -14, 65504.0),
    "bfloat16": Format(8, -126, (2 - 2.0**-7) * 2.0**127),
    "float8_e4m3": Format(4, -6, 448.0, saturates=True),
    "float8_e5m2": Format(3, -14, 57344.0, saturates=True),
}


def rounded(x: NDArray, name: str) -> NDArray:
    """x to the nearest number of a format, ties to even, in x's own dtype.

    >>> rounded(np.array([1.00390625, 1.01171875, 1e39]), "bfloat16").tolist()
    [1.0, 1.015625, inf]
    >>> rounded(np.array([0.001, 1e6]), "float8_e4m3").tolist()
    [0.001953125, 448.0]
    """
    form = FORMATS[name]
    wide = np.asarray(x, np.float64)
    _, exponent = np.frexp(wide)  # wide = fraction · 2**exponent with 0.5 <= fraction < 1
    spacing = np.maximum(exponent - form.bits, form.least_exponent - form.bits + 1)
    nearest = np.ldexp(np.rint(np.ldexp(wide, -spacing)), spacing)
    beyond = form.largest if form.saturates else math.inf
    over = np.isfinite(wide) & (np.abs(nearest) > form.largest)
    if form.saturates:
        over |= np.isinf(wide)
    nearest = np.where(over, np.copysign(beyond, wide), nearest)
    return nearest.astype(np.asarray(x).dtype)
