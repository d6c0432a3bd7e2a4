"""Products through NumPy: what everything falls through to, and the only path for rare dtypes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tiercel import ufuncs
from tiercel.targets.vendor.epilogue import apply_epilogue

_FLOAT16 = np.dtype(np.float16)
_FLOAT32 = np.dtype(np.float32)


def matmul(
    a: NDArray,
    b: NDArray,
    out: NDArray | None = None,
    *,
    epilogue: str | None = None,
    bias: NDArray | None = None,
) -> NDArray:
    """``epilogue(a @ b + bias)`` by ``np.matmul``; operands and ``out`` as NumPy takes them.

    With an epilogue or a bias, a is (..., M, K), b (..., K, N), bias (N,), and both operands have
    one floating dtype. 16-bit operands are multiplied, biased and mapped in float32 and rounded
    once, into ``out`` or (float16) into the result.
    """
    if epilogue is None and bias is None:
        # A cast would write out what a zero stride only repeats: those stay with NumPy's own loop.
        if a.dtype == b.dtype == _FLOAT16 and 0 not in a.strides + b.strides:
            return _float16_product(a, b, out)
        return np.multiply(a, b, out=out) if _is_outer(a, b) else ufuncs.matmul(a, b, out=out)

    wide = np.dtype(_FLOAT32 if a.dtype.itemsize == 2 else a.dtype)
    fits = out is not None and out.dtype == wide
    product = ufuncs.matmul(a, b, out=out if fits else None, dtype=wide)
    apply_epilogue(product, epilogue, None if bias is None else bias.astype(wide, copy=False))
    if out is not None:
        if product is not out:
            np.copyto(out, product, casting="same_kind")
        return out
    return product.astype(_FLOAT16) if a.dtype == _FLOAT16 else product


def _is_outer(a: NDArray, b: NDArray) -> bool:
    """Whether one multiplication makes each element, of real numbers.

    The BLAS goes over the result twice and does not vectorise: 2240 × 3137 float32 takes 10 to 17
    ms, the ufunc 2.4; complex numbers take the same time in both.
    """
    return a.ndim > 1 < b.ndim and a.shape[-1] == 1 and a.dtype == b.dtype and a.dtype.kind == "f"


def _float16_product(a: NDArray, b: NDArray, out: NDArray | None) -> NDArray:
    # NumPy's own float16 loop also accumulates in float32 and rounds once, at 0.3 GFLOP/s
    # (128^3: 16 ms); the float32 loop with casts at both ends takes 0.1 ms.
    product = ufuncs.matmul(a, b, dtype=_FLOAT32)
    if out is None:
        return product.astype(_FLOAT16)
    np.copyto(out, product, casting="same_kind")
    return out
