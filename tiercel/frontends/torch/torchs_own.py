"""Products that torch computes: what is small, or other than ordinary CPU tensors, or traced."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from tiercel.errors import TiercelTypeError
from tiercel.frontends.torch.epilogue import with_epilogue
from tiercel.frontends.torch.errors import TensorValueError
from tiercel.frontends.torch.fold import folded, repeats_much
from tiercel.options import Options


def torchs_matmul(a: Any, b: Any, bias: Any, options: Options) -> torch.Tensor:
    """``epilogue(torch.matmul(a, b) + bias)``; dtypes, errors and gradients are torch's."""
    c = torch.matmul(a, b) if not _is_plain_pair(a, b) or not repeats_much(a, b) else _folded(a, b)
    if bias is not None:
        if tuple(bias.shape) != tuple(b.shape[-1:] if b.dim() > 1 else ()):
            raise TensorValueError(
                f"bias has shape {tuple(bias.shape)}, allowed: ({b.shape[-1]},), one value per "
                "column of the result; add other shapes to the result instead"
            )
        c = c + bias
    return with_epilogue(c, options.epilogue)


def torchs_linear(x: Any, w: Any, bias: Any, options: Options) -> torch.Tensor:
    """``epilogue(F.linear(x, w, bias))``; dtypes, errors and gradients are torch's."""
    return with_epilogue(F.linear(x, w, bias), options.epilogue)


def refuse_scheme(options: Options, reason: str) -> None:
    """Raise if the caller named a scheme that torch's own product would silently replace."""
    if options.scheme not in (None, "vendor"):
        raise TiercelTypeError(
            f"scheme={options.scheme!r} does not work for {reason}: torch itself multiplies those. "
            "Allowed: ordinary CPU tensors of one floating dtype with two axes or more, outside "
            "torch.compile and torch.func; leave scheme out"
        )


def _is_plain_pair(a: Any, b: Any) -> bool:
    return type(a) is torch.Tensor and type(b) is torch.Tensor


def _folded(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    found = folded(a, b)
    if found is None:
        return torch.matmul(a, b)
    a2, b2, unfold = found
    return unfold(torch.matmul(a2, b2))
