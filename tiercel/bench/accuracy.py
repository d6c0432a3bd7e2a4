"""Error of a computed product, on a sample that costs a few milliseconds.

A Strassen-like scheme errs differently in different blocks of C, so the sampled rows are spread
over the whole of C.
"""

from __future__ import annotations

import math

import numpy as np

SAMPLED_ROWS = 32
SAMPLED_DOTS = (8, 32)  # rows × columns; each dot product is summed exactly, about 0.4 ms at K 4096
COLUMN_BLOCK = 1024  # columns of B widened to float64 at a time


def relative_error(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> float:
    """‖C − AB‖ / ‖AB‖ in the Frobenius norm over sampled entries, for real operands.

    float32 products are judged by a float64 product; float64 ones by exact dot products.

    >>> a = np.eye(3); relative_error(a, a, a)
    0.0
    """
    if c.dtype == np.float64:
        rows = _spread(c.shape[0], SAMPLED_DOTS[0])
        cols = _spread(c.shape[1], SAMPLED_DOTS[1])
        return _norm_ratio(c[np.ix_(rows, cols)], _exact_dots(a[rows], b[:, cols]))
    rows = _spread(c.shape[0], SAMPLED_ROWS)
    wide = a[rows].astype(np.float64)
    starts = range(0, b.shape[1], COLUMN_BLOCK)
    reference = [wide @ b[:, start : start + COLUMN_BLOCK].astype(np.float64) for start in starts]
    return _norm_ratio(c[rows], np.concatenate(reference, axis=1))


def _spread(size: int, count: int) -> np.ndarray:
    return np.unique(np.linspace(0, size - 1, num=min(size, count)).astype(int))


def _norm_ratio(computed: np.ndarray, reference: np.ndarray) -> float:
    scale = float(np.linalg.norm(reference))
    difference = float(np.linalg.norm(computed.astype(np.float64) - reference))
    return difference / scale if scale else difference


def _exact_dots(rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
    """Correctly rounded dot products: each product split without error, then summed exactly."""
    dots = np.empty((rows.shape[0], cols.shape[1]))
    for i, row in enumerate(rows):
        products, rests = _two_product(row[:, None], cols)
        for j in range(cols.shape[1]):
            dots[i, j] = math.fsum(np.concatenate([products[:, j], rests[:, j]]))
    return dots


def _two_product(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """x·y as a rounded product and its exact rounding error (Dekker 1971; no overflow handling)."""
    product = x * y
    x_high, x_low = _split(x)
    y_high, y_low = _split(y)
    rest = ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low
    return product, rest


def _split(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Halves of a float64 with at most 26 significant bits each (Veltkamp)."""
    scaled = x * (2.0**27 + 1)
    high = scaled - (scaled - x)
    return high, x - high
