"""Products that torch computes: what is small, or other than ordinary tensors, or watched."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from tiercel.errors import TiercelTypeError
from tiercel.frontends.torch.epilogues.named import with_epilogue
from tiercel.frontends.torch.routing.operands import are_plain
from tiercel.frontends.torch.tensors.errors import TensorTypeError, TensorValueError
from tiercel.frontends.torch.tensors.fold import folded, repeats_much
from tiercel.options import Options


def torchs_matmul(a: Any, b: Any, bias: Any, options: Options) -> torch.Tensor:
    """``epilogue(torch.matmul(a, b) + bias)``; dtypes, errors and gradients are torch's."""
    if bias is not None and are_plain(a, b, bias) and _is_layer(a, b, bias):
        return with_epilogue(torch.addmm(bias, a, b), options.epilogue)
    plain = a is not None and b is not None and are_plain(a, b)
    pair = folded(a, b) if plain and repeats_much(a, b) else None
    c = torch.matmul(a, b) if pair is None else pair[2](torch.matmul(pair[0], pair[1]))
    if bias is not None:
        if not isinstance(bias, torch.Tensor):
            raise TensorTypeError(
                f"bias is a {type(bias).__name__}; allowed: a tensor ({_columns(b)},), one value "
                "per column of the result, or None"
            )
        N = _columns(b)
        if tuple(bias.shape) != (N,):
            raise TensorValueError(
                f"bias has shape {tuple(bias.shape)}, allowed: ({N},), one value per column of the "
                "result; add other shapes to the result instead"
            )
        c = c + (bias if b.dim() > 1 else bias[0])
    return with_epilogue(c, options.epilogue)


def _columns(b: torch.Tensor) -> int:
    return b.shape[-1] if b.dim() > 1 else 1


def _is_layer(a: Any, b: Any, bias: Any) -> bool:
    """Whether torch multiplies and adds the bias (N,) in one launch."""
    return a.is_cuda and a.dim() == b.dim() == 2 and bias.shape == b.shape[1:]


def torchs_linear(x: Any, w: Any, bias: Any, options: Options) -> torch.Tensor:
    """``epilogue(F.linear(x, w, bias))``; dtypes, errors and gradients are torch's."""
    return with_epilogue(F.linear(x, w, bias), options.epilogue)


def torchs_weight_grad(g: Any, x: Any) -> torch.Tensor:
    """``g.T @ x`` of g (..., N) and x (..., K), summed over all leading axes."""
    return g.reshape(-1, g.shape[-1]).mT @ x.reshape(-1, x.shape[-1])


def refuse(options: Options, reason: str, a: Any) -> None:
    """Raise if the caller asked for what torch's own product would silently replace.

    ``a`` is the left operand: an empty product and integers have no bits that could change.
    """
    if options.batch_invariant:
        asked = "batch_invariant=True"
        if a.numel() == 0 or not (a.is_floating_point() or a.is_complex()):
            return
    elif options.scheme not in (None, "vendor"):
        asked = f"scheme={options.scheme!r}"
    else:
        return
    raise TiercelTypeError(
        f"{asked} does not work for {reason or 'these shapes and dtypes'}: torch itself multiplies "
        "those. Allowed: ordinary CPU tensors of one floating dtype with two axes or more; leave "
        "it out"
    )
