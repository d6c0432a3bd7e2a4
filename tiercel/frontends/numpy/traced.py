"""Products with a traced epilogue: the product as always, then the epilogue some rows at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.frontends.numpy.operands import as_plain_array, product_dtypes
from tiercel.frontends.numpy.out import written
from tiercel.frontends.numpy.packed import Packed
from tiercel.lower.epilogue import Given, Instance
from tiercel.lower.epilogue.graph import Reduction
from tiercel.lower.epilogue.instance import DTYPES
from tiercel.lower.epilogue.reference import NUMPY, evaluate, instance_for
from tiercel.options import Options
from tiercel.targets.vendor.erf import erfc

#: 1 - erfc is off by at most a rounding of 1, which is what an erf of order 1 is good to.
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **NUMPY,
    "erf": lambda x: 1 - erfc(np.asarray(x)),
    "normal_cdf": lambda x: 0.5 * erfc(np.asarray(x) * -math.sqrt(0.5)),
}

#: Elements per step: its temporaries stay inside a 2 MiB L2.
_STEP = 32768


def traced_product(
    matmul: Callable[..., Any], a: Any, b: Any, out: Any, bias: Any, options: Options
) -> Any:
    """The outputs of ``options.epilogue``, a ``Given``, for ``matmul(a, b) + bias``.

    16-bit operands are multiplied and mapped in float32; tiles are then rounded once to the
    product's dtype, reductions stay in float32. Returns an array, or a dictionary of them.
    """
    given: Given = options.epilogue  # type: ignore[assignment]
    x, y = as_plain_array(a), b.source if type(b) is Packed else as_plain_array(b)
    dtype = None if x is None or y is None else product_dtypes(x.dtype, y.dtype, None)[0]
    if x is None or y is None or dtype is None or dtype.kind != "f":
        kinds = " and ".join(str(getattr(z, "dtype", type(z).__name__)) for z in (a, b))
        raise TiercelTypeError(
            f"{given} needs a product of real floating arrays, not of {kinds}; convert the "
            "operands (np.asarray, astype), or apply the epilogue to the result"
        )
    for name, operand in given.operands.items():
        _check(name, operand)
    wide = np.dtype(np.float32) if dtype.itemsize == 2 else dtype
    operands = (x.astype(wide), y.astype(wide)) if wide != dtype else (x, b)
    product = matmul(*operands, None, bias, options.with_epilogue(None))
    if product.ndim < 2:
        raise TiercelValueError(
            f"{given} needs a product of matrices, not of shapes {x.shape} and {y.shape}; give "
            "vectors a second axis"
        )
    results = by_rows(given, product, dtype)
    if not given.epilogue.single:
        if out is not None:
            raise TiercelValueError(
                f"out cannot receive the outputs {', '.join(results)}; leave it out"
            )
        return results
    (result,) = results.values()
    return result if out is None else written(out, result)


def _check(name: str, operand: Any) -> None:
    """Raise unless the operand is a real number, or an array of such."""
    try:
        dtype = operand.dtype if hasattr(operand, "dtype") else np.asarray(operand).dtype
    except ValueError:  # rows of different lengths
        dtype = None
    real = isinstance(dtype, np.dtype) and (dtype.kind in "biuf" or dtype.name in DTYPES)
    if not real:
        raise TiercelTypeError(
            f"operand {name} is a {type(operand).__name__} of dtype {dtype}; allowed: a real "
            "number, or a NumPy array of real numbers"
        )


def has_epilogues(a: Any, b: Any) -> bool:
    """Whether a product has any: real floating matrices have."""
    x, y = as_plain_array(a), b.source if type(b) is Packed else as_plain_array(b)
    if x is None or y is None or x.ndim < 2 or y.ndim < 2:
        return False
    dtype, _ = product_dtypes(x.dtype, y.dtype, None)
    return dtype is not None and dtype.kind == "f"


def by_rows(given: Given, product: NDArray, dtype: np.dtype) -> dict[str, NDArray]:
    """Every output for a product (..., M, N), computed in its dtype; tiles are of ``dtype``."""
    epilogue = given.epilogue
    instance = instance_for(epilogue, product, given.operands)
    M = product.shape[-2]
    step = max(1, _STEP * M // max(1, product.size))
    results: dict[str, NDArray] = {}
    for start in range(0, max(1, M), step):
        rows = slice(start, start + step)
        operands = {name: _rows_of(x, rows, instance, name) for name, x in given.operands.items()}
        part = evaluate(instance, product[..., rows, :], operands, product.dtype, _FUNCTIONS)
        for name, block in part.items():
            tile = any(name == x.name for x in instance.outputs)
            if tile or _keeps_rows(name, instance):
                if name not in results:
                    shape = (*block.shape[:-2], M, block.shape[-1])
                    results[name] = np.empty(shape, dtype if tile else block.dtype)
                results[name][..., rows, :] = block
            elif name not in results:
                results[name] = block
            else:
                combine = np.maximum if _kind(name, instance) == "max" else np.add
                results[name] = combine(results[name], block)
    return results


def _rows_of(x: Any, rows: slice, instance: Instance, name: str) -> Any:
    operand = instance.operand(name)
    if operand.kind not in ("tile", "column"):
        return x
    array = np.asarray(x)
    return array[rows] if array.ndim == 1 else array[..., rows, :]


def _keeps_rows(name: str, instance: Instance) -> bool:
    return any(x.name == name and x.to in ("row", "column") and x.over == "row"
               for x in instance.partials)  # fmt: skip


def _kind(name: str, instance: Instance) -> str:
    out = instance.epilogue.outputs[name]
    return out.kind if isinstance(out, Reduction) else ""
