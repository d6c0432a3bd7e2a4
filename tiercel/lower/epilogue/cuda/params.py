"""The kernel argument ``Params``, as bytes: what the host fills in for one launch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from tiercel.errors import TiercelValueError
from tiercel.lower.epilogue.cuda.memory import is_repeated
from tiercel.lower.epilogue.instance import Array, Instance, Partial

_ARRAY = np.dtype(
    [("data", np.uint64), ("batch", np.int64), ("row", np.int64), ("column", np.int64)], align=True
)
_REPEATED = np.dtype(
    [*((name, _ARRAY[name]) for name in _ARRAY.names or ()), ("period", np.uint32)], align=True
)


@lru_cache(maxsize=256)
def params_dtype(instance: Instance) -> np.dtype:
    """The layout of ``Params``, by the rules of C, one field for each member."""
    fields: list[tuple[str, np.dtype]] = []
    for x in instance.operands:
        by_pointer = _REPEATED if is_repeated(x) else _ARRAY
        fields.append((x.name, np.dtype(np.float32) if x.by_value else by_pointer))
    fields += [(x.name, _ARRAY) for x in (*instance.outputs, *instance.partials)]
    fields += [(result_name(x), _ARRAY) for x in instance.partials if x.over == "row"]
    named = [(f"_{name}", kind) for name, kind in fields]  # one of them may be called columns
    return np.dtype([("columns", np.dtype(np.int32)), *named], align=True)


@lru_cache(maxsize=256)
def addresses(instance: Instance) -> tuple[int, ...]:
    """Offsets of the addresses in ``Params``, null pointers among them.

    >>> from tiercel.lower.epilogue import Array, bind, library
    >>> addresses(bind(library.bias, (64, 64), {"bias": Array((64,))}, dtype="float16"))
    (8, 40)
    """
    fields = params_dtype(instance).fields or {}
    return tuple(offset for kind, offset, *_ in fields.values() if "data" in (kind.names or ()))


def pack_params(instance: Instance, N: int, values: Mapping[str, Array | float]) -> bytes:
    """``Params`` for a product of N columns.

    ``values`` has a number for each operand that is passed by value (unless it has a default) and
    an `Array` with its address for each other operand, output and partial result. Partial results
    of rows are (B, M, blocks) or (M, blocks), of columns (B, blocks, columns) or (blocks,
    columns); those of a log-sum-exp count pairs. What is finished of rows in the kernel goes to the
    arrays of ``result_name``, (B, M, 1) or (M, 1). An output that is left out has a null pointer.

    Raises ``TiercelValueError`` for an operand that is missing.
    """
    filled = np.zeros((), params_dtype(instance))
    filled["columns"] = N
    for x in instance.operands:
        value = values.get(x.name, instance.epilogue.defaults.get(x.name))
        if value is None:
            raise TiercelValueError(
                f"operand {x.name!r} is missing; allowed: a value for each operand of the "
                f"epilogue {instance.epilogue.name!r}"
            )
        if isinstance(value, Array):
            period = (value.shape or (1,))[-1]
            if x.kind == "column" and len(value.shape or ()) == 1:
                value = _as_column(value)
            filled[f"_{x.name}"] = _described(value) + ((period,) if is_repeated(x) else ())
        else:
            filled[f"_{x.name}"] = value
    rows = [result_name(x) for x in instance.partials if x.over == "row"]
    for name in (*(x.name for x in (*instance.outputs, *instance.partials)), *rows):
        value = values.get(name)
        if isinstance(value, Array):
            filled[f"_{name}"] = _described(value)
    return filled.tobytes()


def result_name(x: Partial) -> str:
    """Key of the array of a row's results, beside that of its partial results."""
    return f"{x.name}_result"


def _as_column(vector: Array) -> Array:
    """A vector (M,) as (M, 1)."""
    strides = None if vector.strides is None else (*vector.strides, 0)
    return Array((*(vector.shape or ()), 1), vector.dtype, strides, vector.address)


def _described(array: Array) -> tuple[int, int, int, int]:
    """Address and strides of batch, row and column; 0 along an axis of length 1, which repeats."""
    shape = array.shape or ()
    if len(shape) > 3:
        raise TiercelValueError(
            f"an array of an epilogue has shape {shape}; allowed: one batch axis, merge the others"
        )
    strides = array.strides
    if strides is None:
        strides = tuple(int(np.prod(shape[i + 1 :])) for i in range(len(shape)))
    moving = [0 if size == 1 else step for size, step in zip(shape, strides, strict=True)]
    batch, row, column = [0] * (3 - len(shape)) + moving
    return array.address, batch, row, column
