"""``with tiercel.numpy_matmul() as wrap``: NumPy code runs here without being changed.

No function of NumPy is replaced. ``wrap`` returns a view of a subclass whose array protocols send
products to tiercel, in the contexts (threads, tasks) that entered the block and only there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tiercel import ufuncs
from tiercel.errors import TiercelTypeError

#: The product of the innermost open block; None outside every block.
_product: ContextVar[Callable[..., Any] | None] = ContextVar("tiercel_numpy_matmul", default=None)

#: What ``a @= b`` adds to the call of ``np.matmul``: the axes that it uses anyway.
_MATRIX_AXES = [(-2, -1), (-2, -1), (-2, -1)]


class RoutedArray(np.ndarray):
    """A view whose products are tiercel's inside ``numpy_matmul()`` and NumPy's outside.

    Results inside the block are wrapped again, so that a chain of products stays routed.
    """

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        plain = [_unwrap(x) for x in inputs]
        out = kwargs.get("out")
        if out is not None:
            kwargs["out"] = tuple(_unwrap(x) for x in out)
        if kwargs.get("axes") == _MATRIX_AXES:
            del kwargs["axes"]
        compute = _product.get()
        if ufunc is ufuncs.matmul and method == "__call__" and compute and kwargs.keys() <= {"out"}:
            result = compute(*plain, **kwargs)
        else:
            result = getattr(ufunc, method)(*plain, **kwargs)
        return _rewrap(result, out)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        options = [value for value in kwargs.values() if value is not None]
        if _product.get() and not options and len(args) == 2:
            a, b = (_unwrap(x) for x in args)
            # On at most two axes of b, dot and inner are products of matrices.
            if func in (np.dot, np.inner) and np.ndim(a) >= 1 and 1 <= np.ndim(b) <= 2:
                return wrapped(a) @ (b if func is np.dot else np.transpose(b))
        if _product.get() and func is np.linalg.multi_dot:
            # It chooses the order; a product of two others must be routed as well.
            chain = [wrapped(x) if type(x) is np.ndarray else x for x in args[0]]
            args = (chain, *args[1:])
        # What NumPy builds on products calls back into this class.
        return super().__array_function__(func, types, args, kwargs)

    def dot(self, b, out=None):
        """``np.dot``; the method of ``ndarray`` would bypass the array protocols."""
        return np.dot(self, b) if out is None else np.dot(self, b, out=out)


def wrapped(x: ArrayLike) -> RoutedArray:
    """A routed view of x; an array is not copied.

    Raises ``TiercelTypeError`` for a subclass of ndarray: a view would drop what it adds (a mask).
    """
    array = np.asanyarray(x)
    if type(array) not in (np.ndarray, np.memmap, RoutedArray):
        raise TiercelTypeError(
            f"a {type(array).__name__} cannot be wrapped; allowed: plain ndarrays and what "
            "np.asarray takes; convert it with np.asarray if what the subclass adds may be lost"
        )
    return array.view(RoutedArray)


@contextmanager
def numpy_matmul(product: Callable[..., Any]) -> Iterator[Callable[[ArrayLike], RoutedArray]]:
    """Route products of wrapped arrays to ``product(a, b, out=None)`` until the block ends."""
    token = _product.set(product)
    try:
        yield wrapped
    finally:
        _product.reset(token)


def _unwrap(x: Any) -> Any:
    return x.view(np.ndarray) if isinstance(x, RoutedArray) else x


def _rewrap(result: Any, out: tuple | None) -> Any:
    if isinstance(result, tuple):
        return tuple(_rewrap(x, out and (out[i],)) for i, x in enumerate(result))
    if out is not None and out[0] is not None:
        return out[0]
    if type(result) is np.ndarray and _product.get():
        return result.view(RoutedArray)
    return result
