"""Was the product right? Freivalds' probe: C·x against A·(B·x), which is O(n²).

R. Freivalds, *Fast probabilistic algorithms*, MFCS 1979, for rounded arithmetic: the residual is
compared with what the accuracy class allows the rounding errors of the product to be. x has random
signs, and random sizes too: with ±1 alone the entries of an even number of equal errors in a row
cancel in one of √(π/2 · number) cases.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tiercel import ufuncs

#: RMS error of a classical product over the RMS of its entries, in units of the rounding u = ε/2:
#: 4.8 to 5.6 for K from 256 to 3000, OpenBLAS and own kernel.
PRODUCT_ROUNDINGS = 6.0

#: The same of the probe's own three products of a matrix and a vector, at most.
PROBE_ROUNDINGS = 7.0

#: Largest of the rows' residuals over their RMS that chance explains: 4.5 seen in 2048 rows.
SIGMAS = 5.0

_random = np.random.default_rng()


def agrees(a: NDArray, b: NDArray, c: NDArray, bias: NDArray | None, growth: float) -> bool:
    """Whether C (M, N) is A (M, K) · B (K, N) + bias (N,), but for rounding errors.

    ``growth``: how much larger than the classical product's the errors may be, as in an accuracy
    class. Rows where A·(B·x) is not finite are not judged. One dtype for all: float32, float64 or
    their complex kinds.

    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.standard_normal((2, 300, 300), dtype=np.float32)
    >>> c = a @ b
    >>> agrees(a, b, c, None, 1.0)
    True
    >>> c[:8, :8] *= 1.001
    >>> agrees(a, b, c, None, 8.0)
    False
    """
    N = b.shape[1]
    x = _random.uniform(0.5, 1.5, N) * _random.choice((-1.0, 1.0), N)
    x = x.astype(np.finfo(a.dtype).dtype).astype(a.dtype, copy=False)
    with np.errstate(all="ignore"):
        expected = _times(a, _times(b, x))
        if bias is not None:
            expected += bias @ x
        residual = np.abs(_times(c, x) - expected)
        size = np.abs(expected)
        judged = np.isfinite(size)
        if not judged.all():
            residual, size = residual[judged], size[judged]
        tolerance = _tolerance(a.dtype, growth)
        # Most products end here: the RMS over all rows stands for each row's.
        if _largest(residual) <= tolerance * _rms(size):
            return True
        return bool((residual <= tolerance * _row_sizes(a, b, c, judged)).all())


def _times(matrix: NDArray, x: NDArray) -> NDArray:
    """The product of a matrix (M, K) and a vector (K,), on the calling thread alone.

    ``matrix @ x`` takes as long (4096²: 3.4 ms, at the memory's speed), but leaves threads of the
    BLAS spinning: the next product by tiercel's threads then took 1.4 × as long. The BLAS does not
    share dot products of fewer than 10000 elements.
    """
    by_row = abs(matrix.strides[0]) >= abs(matrix.strides[1])
    step = 8192 if by_row else 128  # sums of 128 rows lose less than one over all (4 u, not 19 u)
    parts = []
    for start in range(0, len(x), step):
        part = slice(start, start + step)
        if by_row:
            parts.append(ufuncs.matmul(matrix[:, None, part], x[part, None])[:, 0, 0])
        else:
            parts.append(np.einsum("kj,k->j", matrix.T[part], x[part]))
    return np.add.reduce(parts)


def _tolerance(dtype: np.dtype, growth: float) -> float:
    unit = float(np.finfo(dtype).eps) / 2
    return SIGMAS * (growth * PRODUCT_ROUNDINGS + PROBE_ROUNDINGS) * unit


def _row_sizes(a: NDArray, b: NDArray, c: NDArray, judged: NDArray) -> NDArray:
    """What errors of a row's entries are relative to, for the sum of a row: (rows judged,).

    The entries themselves, or their terms where these cancel: ‖a_i‖ · ‖B‖ / √K is the norm of a
    row of C for independent entries. Products of two passes over all operands: for rows of unlike
    sizes and for cancellation only.
    """
    K = a.shape[1]
    rows = _row_norms(a[judged]) * (np.linalg.norm(_row_norms(b)) / np.sqrt(K))
    smallest = np.finfo(a.dtype).tiny * K * np.sqrt(b.shape[1])
    return np.hypot(rows, _row_norms(c[judged])) + smallest


def _row_norms(x: NDArray) -> NDArray:
    """2-norms of rows, in float64: squares of float32 numbers never overflow there."""
    parts = (np.real(x), np.imag(x)) if x.dtype.kind == "c" else (x,)
    largest = max((np.abs(part).max(initial=0.0) for part in parts), default=0.0) or 1.0
    scaled = [part / largest for part in parts]
    squares = sum(np.einsum("ij,ij->i", part, part, dtype=np.float64) for part in scaled)
    return np.sqrt(squares) * float(largest)


def _largest(values: NDArray) -> float:
    """The maximum, NaN where there is one, 0 of nothing."""
    return float(values.max(initial=0.0))


def _rms(values: NDArray) -> float:
    largest = _largest(values)
    if not largest:
        return 0.0
    return largest * float(np.sqrt(np.mean(np.square(values / largest))))
