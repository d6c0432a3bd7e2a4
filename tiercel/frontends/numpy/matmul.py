"""``matmul`` of NumPy arrays: from what the caller passes to 2-D products."""

from __future__ import annotations

from typing import Any

import numpy as np

from tiercel.frontends.numpy.batch import batched_product, is_never_planned
from tiercel.frontends.numpy.epilogue import as_bias, check_epilogue
from tiercel.frontends.numpy.numpys_own import numpys_own
from tiercel.frontends.numpy.operands import as_operand, as_plain_array, product_dtypes
from tiercel.frontends.numpy.out import check_out, unwrapped, writable_in_place
from tiercel.frontends.numpy.packed import Packed, checked_packed
from tiercel.frontends.numpy.product import Request
from tiercel.frontends.numpy.shapes import (
    as_column,
    as_row,
    product_shape,
    with_matrix_axes,
    without_matrix_axes,
)
from tiercel.frontends.numpy.verify import bare_then_mapped, needs_bare_product
from tiercel.options import DEFAULT, Options
from tiercel.shortcut import keep


def matmul(a: Any, b: Any, out: Any, bias: Any, options: Options) -> Any:
    """``epilogue(a @ b + bias)`` with the semantics of ``np.matmul``; see ``tiercel.matmul``."""
    if options.is_traced:
        from tiercel.frontends.numpy.traced import traced_product

        return traced_product(matmul, a, b, out, bias, options)
    out = unwrapped(out)
    packed = b if type(b) is Packed else None
    x, y = as_plain_array(a), packed.source if packed else as_plain_array(b)
    if type(out) is np.memmap:
        matmul(a, b, out.view(np.ndarray), bias, options)
        return out
    overrides = type(out) is not np.ndarray and hasattr(out, "__array_ufunc__")
    if x is None or y is None or overrides:
        kinds = ", ".join(type(argument).__name__ for argument in (a, b, out))
        return numpys_own(a, b, out, bias, options, f"arguments of types {kinds}")

    shape = product_shape(x.shape, y.shape)
    out_dtype = out.dtype if type(out) is np.ndarray else None
    dtype, result_dtype = product_dtypes(x.dtype, y.dtype, out_dtype)
    if out is not None:
        check_out(out, shape, result_dtype)
    if dtype is None:
        what = f"operands of dtypes {x.dtype} and {y.dtype}"
        return numpys_own(x, y, out, bias, options, what)

    plain = options is DEFAULT and bias is None and x is a and y is b
    if plain and is_never_planned(y, shape, dtype):
        keep(None, x, y, None)

    check_epilogue(options.epilogue, dtype)
    vector = as_bias(bias, shape.N, dtype)
    if packed:
        packed = checked_packed(packed, dtype, options)
    request = Request(options, vector, packed)
    x, y = as_operand(as_row(x), dtype), as_operand(as_column(y), dtype)
    if needs_bare_product(options, dtype):
        result = without_matrix_axes(bare_then_mapped(matmul, x, y, vector, options), shape)
        return result if out is None else _copied(result, out)
    if out is not None and writable_in_place(out, shape, dtype, x, y, vector):
        batched_product(x, y, with_matrix_axes(out, shape), shape, request)
        return out
    result = without_matrix_axes(batched_product(x, y, None, shape, request), shape)
    return result if out is None else _copied(result, out)


def _copied(result: Any, out: Any) -> Any:
    np.copyto(out, result, casting="same_kind")
    return out
