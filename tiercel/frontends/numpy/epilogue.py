"""What follows a product: a bias, one value per column, and a named elementwise function."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiercel.errors import TiercelTypeError, TiercelValueError


def as_bias(bias: Any, N: int, dtype: np.dtype) -> NDArray | None:
    """``bias`` as a contiguous (N,) array of ``dtype``; None stays None."""
    if bias is None:
        return None
    vector = np.asarray(bias)
    if vector.shape != (N,):
        raise TiercelValueError(
            f"bias has shape {vector.shape}, allowed: ({N},), one value per column of the result; "
            "add other shapes to the result instead"
        )
    if not np.can_cast(vector.dtype, dtype, casting="same_kind"):
        raise TiercelTypeError(
            f"bias has dtype {vector.dtype}, which does not convert to {dtype}, the dtype of the "
            f"product; pass a {dtype} bias"
        )
    return np.ascontiguousarray(vector, dtype=dtype)


def check_epilogue(name: str | None, dtype: np.dtype) -> None:
    """Raise for an epilogue on a product of ``dtype`` that has no order and no such function."""
    if name is not None and dtype.kind == "c":
        raise TiercelTypeError(
            f"epilogue={name!r} is defined on real numbers, the product is {dtype}; leave it out, "
            "or apply a function of your own to the result"
        )
