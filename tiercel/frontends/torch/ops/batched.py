"""The operators' rules for ``torch.vmap``: more rows where only the rows are batched.

Every rule gets the batch axis of each operand (None: not batched) and returns the result with its
batch axis in front.
"""

from __future__ import annotations

from typing import Any

import torch

from tiercel.frontends.torch.epilogues.named import with_epilogue
from tiercel.frontends.torch.ops.option_text import decode


def linear(
    info: Any, in_dims: Any, x: Any, w: Any, bias: Any, options: str
) -> tuple[torch.Tensor, int]:
    """One weight for all: the batch is one more axis of rows."""
    x = _in_front(x, in_dims[0], info.batch_size)
    if in_dims[1] is None and in_dims[2] is None:
        return torch.ops.tiercel.linear(x, w, bias, options), 0
    w = _in_front(w, in_dims[1], info.batch_size)
    y = x @ w.mT.reshape(w.shape[0], *[1] * (x.dim() - 3), w.shape[2], w.shape[1])
    return _finished(y, bias, in_dims[2], options), 0


def matmul(
    info: Any, in_dims: Any, a: Any, b: Any, bias: Any, options: str
) -> tuple[torch.Tensor, int]:
    """Torch's own batched product."""
    a, b = (_in_front(x, d, info.batch_size) for x, d in zip((a, b), in_dims, strict=False))
    return _finished(a @ b, bias, in_dims[2], options), 0


def weight_grad(info: Any, in_dims: Any, g: Any, x: Any, options: str) -> tuple[torch.Tensor, int]:
    """A gradient for each member of the batch: torch's own batched product."""
    g, x = (_in_front(y, d, info.batch_size) for y, d in zip((g, x), in_dims, strict=False))
    rows, columns = (y.reshape(y.shape[0], -1, y.shape[-1]) for y in (g, x))
    return rows.mT @ columns, 0


def _in_front(x: torch.Tensor, axis: int | None, size: int) -> torch.Tensor:
    return x.expand(size, *x.shape) if axis is None else x.movedim(axis, 0)


def _finished(y: torch.Tensor, bias: Any, axis: int | None, options: str) -> torch.Tensor:
    if bias is not None:
        bias = bias if axis is None else bias.movedim(axis, 0)
        y = y + (bias if axis is None else bias.reshape(len(bias), *[1] * (y.dim() - 2), -1))
    return with_epilogue(y, decode(options).epilogue)
