"""``matmul`` of tensors: ours where a plan gains, torch's own everywhere else."""

from __future__ import annotations

from typing import Any

import torch

from tiercel.frontends.torch.ops import autograd, traced
from tiercel.frontends.torch.ops.option_text import encode
from tiercel.frontends.torch.ops.sharding import register_sharding_rules
from tiercel.frontends.torch.products import computed, gains, matmul_request
from tiercel.frontends.torch.routing import repeated
from tiercel.frontends.torch.routing.operands import (
    are_distributed,
    are_plain,
    followed,
    transformed,
)
from tiercel.frontends.torch.routing.route import why_left_to_torch
from tiercel.frontends.torch.routing.shortcut import TORCHS, leave_to_torch, look_up
from tiercel.frontends.torch.routing.torchs_own import refuse, torchs_matmul
from tiercel.frontends.torch.tensors.autocast import converted
from tiercel.frontends.torch.tensors.fold import folded
from tiercel.frontends.torch.tensors.out import check_out, into, writable_in_place
from tiercel.options import Options


def matmul(a: Any, b: Any, out: Any, bias: Any, options: Options) -> torch.Tensor:
    """``epilogue(a @ b + bias)`` with the semantics of ``torch.matmul``; see ``tiercel.matmul``."""
    if out is not None:
        check_out(out, a, b, bias)
    if torch.compiler.is_compiling():
        return into(out, traced.matmul(a, b, bias, options))
    known = look_up(a, b, bias, -1, options)
    if known is TORCHS:
        return _torchs(a, b, bias, out, options)
    if known is not None:
        result = repeated.run(known, matmul_request, a, b, bias, options, out)
        if result is not None:
            return result
    reason = why_left_to_torch(a, b, bias, out, options, columns_of=-1)
    if not reason:
        result = _planned(a, b, bias, out, options)
        if result is not None:
            return result
    elif are_distributed(a, b, bias) and a.dim() == b.dim() == 2:
        register_sharding_rules()
        return into(out, autograd.matmul(a, b, bias, encode(options)))
    refuse(options, reason, a)
    return _torchs(a, b, bias, out, options)


def _torchs(a: Any, b: Any, bias: Any, out: Any, options: Options) -> torch.Tensor:
    """Torch's own product, without a copy where that can be."""
    if bias is None and options.epilogue is None:
        if out is None and isinstance(b, torch.Tensor) and b.dim() == 2:
            return torch.matmul(a, b)
        if out is not None and are_plain(out, a, b) and writable_in_place(out, a, b):
            return torch.matmul(a, b, out=out)
    return into(out, torchs_matmul(a, b, bias, options))


def _planned(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    out: torch.Tensor | None,
    options: Options,
) -> torch.Tensor | None:
    """The product by a plan of ours; None where torch is expected to be faster, or to refuse."""
    left, right = converted(a), converted(b)
    vector = None if bias is None else converted(bias)
    pair = folded(left, right)
    if pair is None:
        return None
    a2, b2, unfold = pair
    request = matmul_request(a2, b2, vector, options)
    # A bias of columns that folding put beside one another is not the caller's.
    if request is None or (bias is not None and b2.shape[-1] != b.shape[-1]):
        return None
    if followed(left, right, vector):
        if transformed() or gains(request):
            return unfold(autograd.matmul(a2, b2, vector, encode(options), by_function=True))
    else:
        matrices = out is not None and out.dim() == a2.dim() == 2
        in_place = out is not None and matrices and writable_in_place(out, a, b, bias)
        result = computed(request, (*a2.shape[:-1], b2.shape[-1]), out if in_place else None)
        if result is not None:
            if a2 is a and b2 is b:
                repeated.remember(a, b, bias, -1, request, matmul_request, result)
            return result if in_place else into(out, unfold(result))
    leave_to_torch(a, b, bias, -1, options)
    return None
