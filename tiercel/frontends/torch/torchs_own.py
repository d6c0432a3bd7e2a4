"""Products that torch computes: what is small, or other than ordinary CPU tensors, or traced."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from tiercel.errors import TiercelTypeError
from tiercel.frontends.torch.epilogue import with_epilogue
from tiercel.frontends.torch.errors import TensorValueError
from tiercel.frontends.torch.fold import folded, repeats_much
from tiercel.frontends.torch.operands import are_plain
from tiercel.options import Options


def torchs_matmul(a: Any, b: Any, bias: Any, options: Options) -> torch.Tensor:
    """``epilogue(torch.matmul(a, b) + bias)``; dtypes, errors and gradients are torch's."""
    pair = folded(a, b) if are_plain(a, b) and repeats_much(a, b) else None
    c = torch.matmul(a, b) if pair is None else pair[2](torch.matmul(pair[0], pair[1]))
    if bias is not None:
        N = b.shape[-1] if b.dim() > 1 else 1
        if tuple(bias.shape) != (N,):
            raise TensorValueError(
                f"bias has shape {tuple(bias.shape)}, allowed: ({N},), one value per column of the "
                "result; add other shapes to the result instead"
            )
        c = c + (bias if b.dim() > 1 else bias[0])
    return with_epilogue(c, options.epilogue)


def torchs_linear(x: Any, w: Any, bias: Any, options: Options) -> torch.Tensor:
    """``epilogue(F.linear(x, w, bias))``; dtypes, errors and gradients are torch's."""
    return with_epilogue(F.linear(x, w, bias), options.epilogue)


def refuse_scheme(options: Options, reason: str) -> None:
    """Raise if the caller named a scheme that torch's own product would silently replace."""
    if options.scheme not in (None, "vendor"):
        reason = reason or "these shapes and dtypes"
        raise TiercelTypeError(
            f"scheme={options.scheme!r} does not work for {reason}: torch itself multiplies those. "
            "Allowed: ordinary CPU tensors of one floating dtype with two axes or more, outside "
            "torch.compile and torch.func; leave scheme out"
        )
