"""A traced epilogue in torch's operations: for what no kernel fuses, and for its derivatives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from tiercel.errors import TiercelTypeError
from tiercel.lower.epilogue import Array, Epilogue, Instance, bind
from tiercel.lower.epilogue.graph import Node, Output, Reduction, node_of

#: Operation -> torch.
TORCH = {
    "add": torch.add, "subtract": torch.subtract, "multiply": torch.multiply,
    "divide": torch.divide, "negative": torch.neg, "absolute": torch.abs,
    "maximum": torch.maximum, "minimum": torch.minimum, "exp": torch.exp, "log": torch.log,
    "tanh": torch.tanh, "erf": torch.erf, "normal_cdf": torch.special.ndtr,
    "sigmoid": torch.sigmoid, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "less": torch.lt,
    "less_equal": torch.le, "greater": torch.gt, "greater_equal": torch.ge, "equal": torch.eq,
    "not_equal": torch.ne, "logical_and": torch.logical_and, "logical_or": torch.logical_or,
    "logical_not": torch.logical_not, "where": torch.where,
}  # fmt: skip

_EIGHT_BITS = {"float8_e4m3": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2}


def evaluate(
    epilogue: Epilogue, acc: torch.Tensor, operands: Mapping[str, Any], dtype: torch.dtype
) -> dict[str, torch.Tensor]:
    """Every output for a product acc (..., M, N), computed in acc's dtype; tiles are of ``dtype``.

    Operands are tensors of acc's device and numbers. Reductions are complete, as in NumPy's
    ``lower/epilogue/reference.py``. Differentiable. Raises ``TiercelTypeError`` for other operands,
    ``TiercelValueError`` for shapes that do not fit.
    """
    instance = instance_for(epilogue, acc, operands, dtype)
    given = {
        name: _operand(x, instance.operand(name).kind, acc)
        for name, x in {**epilogue.defaults, **operands}.items()
    }
    values: dict[Node, torch.Tensor] = {}
    for x in instance.nodes:
        if x.op == "acc":
            values[x] = acc
        elif x.op == "operand":
            values[x] = given[x.value]
        else:
            values[x] = _value(x, values, instance, acc)
    return {
        name: _output(out, values[node_of(out)], instance, acc, given, dtype)
        for name, out in epilogue.outputs.items()
    }


def instance_for(
    epilogue: Epilogue, acc: torch.Tensor, operands: Mapping[str, Any], dtype: torch.dtype
) -> Instance:
    """The epilogue bound to a product's shape and its operands'."""
    arrays = {name: _described(name, x, acc) for name, x in operands.items()}
    return bind(epilogue, tuple(acc.shape), arrays, dtype=_name(dtype))


def _described(name: str, x: Any, acc: torch.Tensor) -> Array:
    if isinstance(x, int | float):
        return Array(None)
    if not isinstance(x, torch.Tensor) or x.device != acc.device:
        where = x.device if isinstance(x, torch.Tensor) else type(x).__name__
        raise TiercelTypeError(
            f"operand {name} is on {where}; allowed: numbers, and tensors on {acc.device}, where "
            "the product is"
        )
    whole = "int64" if not x.dtype.is_floating_point else _name(x.dtype)
    return Array(tuple(x.shape), whole)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _operand(x: Any, kind: str, acc: torch.Tensor) -> torch.Tensor:
    if not isinstance(x, torch.Tensor):
        return acc.new_full((), x)
    x = x[:, None] if kind == "column" and x.dim() == 1 else x
    return x.to(acc.dtype) if x.is_floating_point() else x


def _value(
    x: Node, values: Mapping[Node, torch.Tensor], instance: Instance, acc: torch.Tensor
) -> torch.Tensor:
    args = [values[arg] for arg in x.read]
    if x.op == "constant":
        return acc.new_full((), x.value)
    if x.op == "index":
        return torch.arange(_columns(acc, instance.width[x]), device=acc.device)
    if x.op in ("even", "odd"):
        return _full(args[0], acc, instance.width[x.args[0]])[..., x.op == "odd" :: 2]
    if x.op == "interleave":
        return torch.stack(torch.broadcast_tensors(*args), -1).flatten(-2)
    if x.op == "repeat":
        if instance.width[x] is None:
            return args[0]
        columns = _columns(acc, instance.width[x])
        period = args[0].shape[-1]
        return args[0][..., torch.arange(columns, device=acc.device) % period]
    if x.op == "cast":
        return _rounded(args[0], x.value)
    return TORCH[x.op](*args)


def _rounded(x: torch.Tensor, name: str) -> torch.Tensor:
    """x rounded to a format; those of 8 bits saturate, as the conversion instructions do."""
    if name not in _EIGHT_BITS:
        return x.to(getattr(torch, name)).to(x.dtype)
    kind = _EIGHT_BITS[name]
    largest = torch.finfo(kind).max
    return x.clamp(-largest, largest).to(kind).to(x.dtype)


def _columns(acc: torch.Tensor, width: int | None) -> int:
    N, width = acc.shape[-1], width or 0
    return N * 2**width if width >= 0 else N // 2**-width  # whole numbers: N may be symbolic


def _full(x: torch.Tensor, acc: torch.Tensor, width: int | None) -> torch.Tensor:
    return torch.broadcast_to(x, (*acc.shape[:-1], _columns(acc, width)))


def _output(
    out: Output, value: torch.Tensor, instance: Instance, acc: torch.Tensor,
    given: Mapping[str, torch.Tensor], dtype: torch.dtype,
) -> torch.Tensor:  # fmt: skip
    full = _full(value, acc, instance.width[node_of(out)])
    if not isinstance(out, Reduction):
        return full.to(dtype).contiguous()
    if out.like:
        return full.to(acc.dtype).sum_to_size(given[out.like].shape)
    axis = -1 if out.over == "row" else -2
    if out.kind == "sum":
        return full.to(acc.dtype).sum(axis, keepdim=True)
    return full.amax(axis, True) if out.kind == "max" else torch.logsumexp(full, axis, True)
