"""The caller's ``out``: checked before anything is written, and protected from aliasing."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.frontends.numpy.shapes import ProductShape


def unwrapped(out: Any) -> Any:
    """The array of a ufunc-style ``out=(array,)``; anything else as it is."""
    if not isinstance(out, tuple):
        return out
    if len(out) != 1:
        raise TiercelValueError(
            f"out is a tuple of {len(out)}; a product has exactly one output: out=array or "
            "out=(array,)"
        )
    return out[0]


def check_out(out: Any, shape: ProductShape, dtype: np.dtype) -> None:
    """Raise unless ``np.matmul`` would write a result of ``shape`` and ``dtype`` to ``out``."""
    if not isinstance(out, np.ndarray):
        raise TiercelTypeError(
            f"out is a {type(out).__name__}; allowed: an ndarray, a tuple of one, or None"
        )
    if not out.flags.writeable:
        raise TiercelValueError(
            "out: the output array is read-only; pass a writeable array, or none"
        )
    if not _holds(out.shape, shape):
        raise TiercelValueError(
            f"out has shape {out.shape}, the result {shape.result}: a non-broadcastable output; "
            "pass an out of the result's shape"
        )
    if not np.can_cast(dtype, out.dtype, casting="same_kind"):
        raise TiercelTypeError(
            f"Cannot cast ufunc 'matmul' output from {dtype!r} to {out.dtype!r}, the dtype of out, "
            f"with casting rule 'same_kind'; pass an out of dtype {dtype}, or cast the result"
        )


def _holds(out: tuple[int, ...], shape: ProductShape) -> bool:
    """Equal shapes; or, as for every ufunc, an out with a larger batch that repeats the result."""
    if out == shape.result:
        return True
    split = len(out) - len(shape.core)
    if split < 0 or out[split:] != shape.core:
        return False
    try:
        return np.broadcast_shapes(shape.batch, out[:split]) == out[:split]
    except ValueError:
        return False


def writable_in_place(
    out: NDArray, shape: ProductShape, dtype: np.dtype, *read: NDArray | None
) -> bool:
    """Whether a kernel may write ``out`` while it reads the arrays of ``read``."""
    return (
        out.dtype == dtype
        and out.shape == shape.result
        and out.flags.aligned
        and _keeps_elements_apart(out.shape, out.strides, out.itemsize)
        and not any(_overlap(out, x) for x in read if x is not None)
    )


def written(out: Any, result: NDArray) -> NDArray:
    """``out``, to which a finished result was copied: that of a traced epilogue.

    Raises ``TiercelValueError`` for another shape, ``TiercelTypeError`` for a dtype that it does
    not cast to.
    """
    array = unwrapped(out)
    if not isinstance(array, np.ndarray) or array.shape != result.shape:
        raise TiercelValueError(
            f"out has shape {getattr(array, 'shape', None)}; allowed: an array of shape "
            f"{result.shape}, that of the result"
        )
    if not np.can_cast(result.dtype, array.dtype, casting="same_kind"):
        raise TiercelTypeError(
            f"out has dtype {array.dtype}, to which {result.dtype} does not cast; pass an out of "
            f"dtype {result.dtype}"
        )
    np.copyto(array, result, casting="same_kind")
    return array


def _overlap(x: NDArray, y: NDArray) -> bool:
    # The exact test may take exponential time: one candidate decides views of one buffer that are
    # halves, columns or every other row; what it leaves open counts as overlap.
    try:
        return np.shares_memory(x, y, max_work=1)  # pyright: ignore[reportArgumentType]
    except np.exceptions.TooHardError:
        return True


@lru_cache(maxsize=4096)
def _keeps_elements_apart(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    """Whether strides are whole elements and no two elements share an address.

    False for broadcast and sliding-window views; also for some views that only interleave.
    """
    axes = zip(strides, shape, strict=True)
    extent = itemsize
    for stride, size in sorted((abs(stride), size) for stride, size in axes if size > 1):
        if stride < extent or stride % itemsize:
            return False
        extent = stride * (size - 1) + extent
    return True
