"""``linear`` of tensors: ours where a plan gains, torch's own everywhere else."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from tiercel.frontends.torch.ops import autograd, traced
from tiercel.frontends.torch.ops.option_text import encode
from tiercel.frontends.torch.ops.sharding import register_sharding_rules
from tiercel.frontends.torch.products import (
    computed,
    eager_request,
    gains,
    gains_followed,
)
from tiercel.frontends.torch.routing import differentiated, repeated
from tiercel.frontends.torch.routing.operands import (
    are_distributed,
    are_plain,
    followed,
    transformed,
    watched,
)
from tiercel.frontends.torch.routing.route import in_training, insisted, why_left_to_torch
from tiercel.frontends.torch.routing.shortcut import (
    PLANNED,
    PLANNED_ALONE,
    TORCHS,
    keep,
    leave_to_torch,
    look_up,
)
from tiercel.frontends.torch.routing.torchs_own import refuse, torchs_linear
from tiercel.frontends.torch.tensors.autocast import converted
from tiercel.frontends.torch.tensors.out import check_out, into, writable_in_place
from tiercel.options import Options


def linear(x: Any, w: Any, bias: Any, out: Any, options: Options) -> torch.Tensor:
    """``epilogue(F.linear(x, w, bias))``; see ``tiercel.linear``."""
    if out is not None:
        check_out(out, x, w.t() if isinstance(w, torch.Tensor) else w, bias)
    if torch.compiler.is_compiling():
        return into(out, traced.linear(x, w, bias, options))
    options = in_training(w, options)
    return looked_up(look_up(x, w, bias, 0, options), x, w, bias, out, options)


def looked_up(known: Any, x: Any, w: Any, bias: Any, out: Any, options: Options) -> torch.Tensor:
    """``linear``, of which ``known`` is known; ``out`` is None or fits."""
    if known is TORCHS:
        if out is None and options.epilogue is None:
            return F.linear(x, w, bias)
        return into(out, torchs_linear(x, w, bias, options))
    if known is not None and out is None:
        if followed(x, w, bias):
            result = differentiated.linear(known, x, w, bias, options)
        else:
            result = repeated.run(known, eager_request, x, w, bias, options)
        if result is not None:
            return result
        if _only_differentiated(x, w, bias):
            return autograd.linear(x, w, bias, encode(options), by_function=True)
    reason = why_left_to_torch(x, w, bias, out, options, columns_of=0)
    if not reason:
        result = _planned(x, w, bias, out, options)
        if result is not None:
            return result
    elif are_distributed(x, w, bias):
        register_sharding_rules()
        return into(out, autograd.linear(x, w, bias, encode(options)))
    refuse(options, reason, x)
    return into(out, torchs_linear(x, w, bias, options))


def _only_differentiated(x: Any, w: Any, bias: Any) -> bool:
    """Whether autograd follows the call, and nothing else does."""
    return are_plain(bias) and followed(x, w, bias) and not (transformed() or watched())


def _planned(
    x: torch.Tensor,
    w: torch.Tensor,
    bias: torch.Tensor | None,
    out: torch.Tensor | None,
    options: Options,
) -> torch.Tensor | None:
    """The product by a plan of ours; None where torch is expected to be faster, or to refuse."""
    seen, weight = converted(x), converted(w)
    vector = None if bias is None else converted(bias)
    options = in_training(weight, options)  # of the dtype that autocast asks for, too
    request = eager_request(seen, weight, vector, options)
    if request is None:
        return None
    if followed(seen, weight, vector):
        if transformed() or gains(request):
            if not (transformed() or insisted(options)):
                long = gains_followed(request)
                keep(PLANNED if long else PLANNED_ALONE, x, w, bias, 0, options)
                if not long:
                    return None
            return autograd.linear(seen, weight, vector, encode(options), by_function=True)
    else:
        in_place = out is not None and writable_in_place(out, x, w, bias)
        result = computed(request, (*x.shape[:-1], w.shape[0]), out if in_place else None)
        if result is not None:
            repeated.remember(x, w, bias, 0, request, eager_request, result)
            return result if in_place else into(out, result)
    leave_to_torch(x, w, bias, 0, options)
    return None
