"""Which operands are computed here, and in which dtype."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiercel import ufuncs
from tiercel.errors import TiercelTypeError

#: dtypes that the engine multiplies. NumPy itself multiplies ml_dtypes' bfloat16 in float32 and
#: answers in float32, so bfloat16 counts only where the caller's ``out`` is bfloat16 too.
ACCELERATED = ("float16", "float32", "float64", "complex64", "complex128")

#: Marks of an object that wants a say in what NumPy does with it (subclasses have them too).
_PROTOCOLS = ("__array_ufunc__", "__array_function__", "__array_priority__", "__array_wrap__")


def as_plain_array(x: Any) -> NDArray | None:
    """x as an exact ``ndarray``, or None if x is for ``np.matmul`` to handle.

    Lists, tuples, numbers and buffers become arrays. A memory map is read as the array it is:
    NumPy too answers with a plain array for it. Every other subclass, and every object with an
    array protocol of its own, keeps its own behaviour.

    >>> as_plain_array([1, 2]).tolist(), as_plain_array(np.ma.ones(3))
    ([1, 2], None)
    """
    if type(x) is np.ndarray:
        return x
    if type(x) is np.memmap:
        return x.view(np.ndarray)
    if any(hasattr(x, name) for name in _PROTOCOLS):
        return None
    return np.asarray(x)


@lru_cache(maxsize=512)
def product_dtypes(
    a: np.dtype, b: np.dtype, out: np.dtype | None
) -> tuple[np.dtype | None, np.dtype]:
    """``(compute, result)`` dtypes of a product of dtypes a and b written to dtype out.

    ``result`` is what NumPy answers with when it allocates the result; ``compute`` is the dtype
    in which the engine multiplies, None where only NumPy can.

    Raises ``TiercelTypeError`` for dtypes that NumPy cannot multiply.

    >>> product_dtypes(np.dtype("f4"), np.dtype("f8"), None)
    (dtype('float64'), dtype('float64'))
    >>> product_dtypes(np.dtype("i4"), np.dtype("i8"), None)
    (None, dtype('int64'))
    """
    try:
        *_, result = ufuncs.matmul.resolve_dtypes((a, b, None))
    except TypeError as error:
        raise TiercelTypeError(f"no product of dtypes {a} and {b}: {error}") from None
    if out is not None and a == b == out and a.name == "bfloat16":
        return a, result
    return (result if result.name in ACCELERATED else None), result


def as_operand(x: NDArray, dtype: np.dtype) -> NDArray:
    """x in ``dtype``, native, aligned, strides in whole elements; a copy only if x is not so."""
    if x.dtype == dtype and x.flags.aligned and not _splits_elements(x.strides, dtype.itemsize):
        return x
    # Axes that repeat (stride 0) are copied once and repeat again.
    once = x[tuple(slice(None) if stride else slice(0, 1) for stride in x.strides)]
    return np.broadcast_to(once.astype(dtype), x.shape)


@lru_cache(maxsize=4096)
def _splits_elements(strides: tuple[int, ...], itemsize: int) -> bool:
    return any(stride % itemsize for stride in strides)
