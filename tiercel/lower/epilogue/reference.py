"""An epilogue in NumPy: float64 for the oracle of every lowering, any dtype for products.

Source of the formulas: `operations.py` and `vocabulary.py` say what each operation is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiercel.lower.epilogue.graph import Node, Output, Reduction, node_of
from tiercel.lower.epilogue.instance import Array, Instance, bind
from tiercel.lower.epilogue.rounding import rounded

_erf = np.frompyfunc(math.erf, 1, 1)
_erfc = np.frompyfunc(math.erfc, 1, 1)


def _elementwise(function: Any) -> Callable[[Any], NDArray]:
    """A function of Python floats on arrays: slow, and the C library's accuracy."""
    return lambda x: np.asarray(function(np.asarray(x, np.float64)), np.float64).astype(
        np.asarray(x).dtype
    )


#: Operation -> NumPy. A caller that has faster functions passes them to `evaluate`.
NUMPY: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "negative": np.negative,
    "absolute": np.absolute,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "erf": _elementwise(_erf),
    "normal_cdf": _elementwise(lambda x: 0.5 * _erfc(x * -math.sqrt(0.5))),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_not": np.logical_not,
    "where": np.where,
}


def instance_for(
    epilogue: Any, acc: NDArray, operands: Mapping[str, Any], dtype: str = "float32"
) -> Instance:
    """The instance of an epilogue for these arrays; numbers are passed by value."""
    return bind(
        epilogue, acc.shape, {name: _described(x) for name, x in operands.items()}, None, dtype
    )


def _described(x: Any) -> Array:
    if not hasattr(x, "shape"):
        if isinstance(x, int | float):
            return Array(None)
        x = np.asarray(x)
    return Array(tuple(x.shape), "int64" if np.dtype(x.dtype).kind in "iu" else "float64")


def evaluate(
    instance: Instance,
    acc: NDArray,
    operands: Mapping[str, Any],
    dtype: Any = np.float64,
    functions: Mapping[str, Callable[..., Any]] = NUMPY,
) -> dict[str, NDArray]:
    """Every output for an accumulator (..., M, N), computed and returned in ``dtype``.

    Reductions are complete: (..., M, 1) for rows, (..., 1, columns) for columns, the shape of the
    operand for sums like an operand. Nothing warns: infinities and NaN are results.
    """
    dtype = np.dtype(dtype)
    epilogue = instance.epilogue
    given = {
        name: _broadcastable(x, instance.operand(name).kind)
        for name, x in {**epilogue.defaults, **operands}.items()
    }
    values: dict[Node, Any] = {}
    with np.errstate(all="ignore"):
        for x in instance.nodes:
            if x.op == "acc":
                values[x] = np.asarray(acc, dtype)
            elif x.op == "operand":
                values[x] = _operand(given[x.value], dtype)
            else:
                values[x] = _value(x, values, instance, acc.shape, dtype, functions)
        return {
            name: _output(out, values[node_of(out)], instance, acc.shape, given, dtype)
            for name, out in epilogue.outputs.items()
        }


def _broadcastable(x: Any, kind: str) -> Any:
    """A column passed as a vector (M,) as (M, 1)."""
    return np.asarray(x)[:, None] if kind == "column" and np.ndim(x) == 1 else x


def _operand(x: Any, dtype: np.dtype) -> NDArray:
    array = np.asarray(x)
    return array if array.dtype.kind in "iu" and hasattr(x, "shape") else array.astype(dtype)


def _value(
    x: Node,
    values: Mapping[Node, Any],
    instance: Instance,
    acc: tuple[int, ...],
    dtype: np.dtype,
    functions: Mapping[str, Callable[..., Any]],
) -> Any:
    args = [values[arg] for arg in x.read]
    if x.op == "constant":
        return dtype.type(x.value)
    if x.op == "index":
        return np.arange(_columns(acc, instance.width[x]))
    if x.op in ("even", "odd"):
        return _full(args[0], acc, instance.width[x.args[0]])[..., x.op == "odd" :: 2]
    if x.op == "interleave":
        halves = np.broadcast_arrays(*args)
        return np.stack(halves, axis=-1).reshape(*halves[0].shape[:-1], -1)
    if x.op == "repeat":
        if instance.width[x] is None:
            return args[0]
        period = args[0].shape[-1]
        return args[0][..., np.arange(_columns(acc, instance.width[x])) % period]
    if x.op == "cast":
        return rounded(args[0].astype(dtype), x.value)
    return functions[x.op](*args)


def _columns(acc: tuple[int, ...], width: int | None) -> int:
    return int(acc[-1] * 2.0 ** (width or 0))


def _full(x: NDArray, acc: tuple[int, ...], width: int | None) -> NDArray:
    return np.broadcast_to(x, (*acc[:-1], _columns(acc, width)))


def _output(
    out: Output,
    value: NDArray,
    instance: Instance,
    acc: tuple[int, ...],
    given: Mapping[str, Any],
    dtype: np.dtype,
) -> NDArray:
    full = _full(value, acc, instance.width[node_of(out)])
    if not isinstance(out, Reduction):
        return np.array(full, dtype)
    if out.like:
        return sum_to(full, np.shape(given[out.like])).astype(dtype)
    return reduce(out.kind, full, -1 if out.over == "row" else -2).astype(dtype)


def reduce(kind: str, x: NDArray, axis: int) -> NDArray:
    """The sum, max or logsumexp of x along an axis, which stays with length 1; empty ones too.

    >>> reduce("logsumexp", np.array([[1000.0, 1000.0], [-np.inf, -np.inf]]), -1).tolist()
    [[1000.6931471805599], [-inf]]
    """
    if kind == "sum":
        return x.sum(axis, keepdims=True)
    largest = x.max(axis, keepdims=True, initial=-np.inf)
    if kind == "max":
        return largest
    base = np.where(np.isinf(largest), 0.0, largest)
    with np.errstate(over="ignore", divide="ignore"):
        return base + np.log(np.exp(x - base).sum(axis, keepdims=True))


def sum_to(x: NDArray, shape: tuple[int, ...]) -> NDArray:
    """The sum of x over the axes along which an array of ``shape`` would repeat.

    >>> sum_to(np.ones((2, 3)), (3,)).tolist(), sum_to(np.ones((2, 3)), (2, 1)).tolist()
    ([2.0, 2.0, 2.0], [[3.0], [3.0]])
    """
    lead = x.ndim - len(shape)
    axes = tuple(range(max(0, lead))) + tuple(
        i + lead for i, size in enumerate(shape) if i + lead >= 0 and size == 1
    )
    return x.sum(axes).reshape(shape)


def finish(kind: str, partials: NDArray, axis: int) -> NDArray:
    """A reduction from its partial results along ``axis``, which stays with length 1.

    Partial results of a "logsumexp" are pairs (largest, sum of exp(x - largest)) along a last axis
    of length 2, which goes.

    >>> finish("logsumexp", np.array([[[3.0, 1.0], [3.0, 1.0]]]), 1).round(6).tolist()
    [[3.693147]]
    """
    if kind != "logsumexp":
        return reduce(kind, partials, axis)
    with np.errstate(divide="ignore"):
        blocks = np.where(np.isinf(partials[..., 0]), 0, partials[..., 0]) + np.log(
            partials[..., 1]
        )
    return reduce("logsumexp", blocks, axis)
