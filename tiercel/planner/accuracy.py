"""Accuracy classes, the predicted error growth of a program, and its run-time guard.

Growth is that of the RMS error over the classical product in the same dtype: √(Φ / mkn) for a
scheme (``schemes/accuracy.py``). A class is a bound on it.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tiercel.lower.recipe import Guard
from tiercel.schemes import Scheme

#: Standard loses at most three bits of the RMS accuracy, fast at most six.
CLASSES = {"classical": 1.0, "standard": 8.0, "fast": 64.0}

#: Gauss's three-multiplication complex product: Φ = 13 against 8 of the four-multiplication form.
GAUSS_GROWTH = (13 / 8) ** 0.5

#: Largest finite value of the compute dtypes.
LARGEST = {"float32": 3.4028234e38, "float64": 1.7976931e308}

#: Allowed product of the operands' scale ratios (largest : smallest 1-norm of a row or column
#: segment). Normal data of 128 elements a segment reach 3. With it the component-wise error
#: |C − ref| / (eps·|A||B|) of normal data stays under 8 for three levels (classical: 1 to 2); data
#: of one sign, where the classical product itself reaches 6, reach 70.
SCALE_LIMIT = 16.0


def bound(accuracy: str | float) -> float:
    """Largest error growth that an accuracy class (or number) allows."""
    return CLASSES[accuracy] if isinstance(accuracy, str) else float(accuracy)


@lru_cache(maxsize=256)
def growth(scheme: Scheme | None, is_complex: bool) -> float:
    """Predicted RMS error growth over the classical product (1.0)."""
    base = 1.0 if scheme is None else _rms_growth(scheme)
    return base * (GAUSS_GROWTH if is_complex else 1.0)


@lru_cache(maxsize=256)
def guard(scheme: Scheme | None, is_complex: bool, compute: str, k_blocks: int) -> Guard | None:
    """Limits under which ``scheme`` loses nothing that the classical product keeps.

    No intermediate may overflow where the classical product would not: sums of blocks grow by at
    most E (Gauss: 4 E), over ``k_blocks`` segments of K.
    """
    if scheme is None and not is_complex:
        return None
    factor = 1.0 if scheme is None else _stability_factor(scheme)
    return Guard(SCALE_LIMIT, LARGEST[compute] / (4 * factor * max(1, k_blocks)))


# The figures of schemes/accuracy.py in floating point: exact fractions of three levels take 0.1 s.


def _rms_growth(scheme: Scheme) -> float:
    u, v, w = (np.square(x.floats()).sum(axis=1) for x in (scheme.U, scheme.V, scheme.W))
    return float(np.sqrt((u * v * w).sum() / (scheme.m * scheme.k * scheme.n)))


def _stability_factor(scheme: Scheme) -> float:
    u, v, w = (np.abs(x.floats()) for x in (scheme.U, scheme.V, scheme.W))
    return float((w.T @ (u.sum(axis=1) * v.sum(axis=1))).max())
