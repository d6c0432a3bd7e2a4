"""Linear layers that autograd follows, repeated: from what is known of one to three launches.

A training step repeats the products of the one before. What ``repeated`` finds by a key of each
product is found once here, for those of the derivatives as well: they are kept where the layer's
own product is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.nn import functional as F

from tiercel.frontends.torch.ops import autograd
from tiercel.frontends.torch.ops.option_text import decode, encode
from tiercel.frontends.torch.products import (
    eager_request,
    linear_request,
    weight_grad_request,
)
from tiercel.frontends.torch.routing.operands import are_plain, transformed, watched
from tiercel.frontends.torch.routing.repeated import Known, RequestOf, kinds
from tiercel.frontends.torch.routing.shortcut import (
    PLANNED,
    PLANNED_ALONE,
    TORCHS,
    keep,
    look_up,
)
from tiercel.frontends.torch.routing.torchs_own import torchs_linear, torchs_weight_grad
from tiercel.frontends.torch.tensors.precision import in_tf32
from tiercel.options import Options


def linear(known: Any, x: Any, w: Any, bias: Any, options: Options) -> torch.Tensor | None:
    """``F.linear(x, w, bias)``, of which ``known`` is known, differentiable.

    None where this call has to be looked at.
    """
    if known is PLANNED_ALONE:
        return torchs_linear(x, w, bias, options)
    if known is PLANNED:  # the operator remembers it by options of its own
        known = look_up(x, w, bias, 0, decode(encode(options)))
        if type(known) is Known:
            keep(known, x, w, bias, 0, options)
    if type(known) is not Known or known.direct is None or options.epilogue is not None:
        return None
    if not known.followed:
        return torchs_linear(x, w, bias, options)
    if known.request_of is not linear_request and known.request_of is not eager_request:
        return None
    if not are_plain(bias) or watched() or transformed() or kinds(x, w, bias) != known.kinds:
        return None
    if known.engine.why_not(x.dtype):
        return None
    return _apply(x, w, bias, known, encode(options))


class _Again(torch.autograd.Function):
    """``autograd.Linear`` that begins with ``known.direct``."""

    @staticmethod
    def forward(ctx: Any, x: Any, w: Any, bias: Any, known: Any, options: str) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        autograd.Linear.setup_context(ctx, (x, w, options), x)
        ctx.known = known
        output = known.direct(x, w, bias)
        return autograd.Linear.forward(x, w, bias, options) if output is None else output

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        if torch.is_grad_enabled() or not autograd.only_computed(grad):
            return *autograd.Linear.backward(ctx, grad), None
        x, w = ctx.saved_tensors
        needs_x, needs_w, needs_bias, *_ = ctx.needs_input_grad
        grad_x = grad_w = grad_bias = None
        # All else that the products depend on is the layer's own product's.
        keys = torch._C._dispatch_keys(grad).raw_repr()
        like = grad.shape, grad.stride(), keys, ctx.options, in_tf32(grad)
        if needs_x:
            grad_x = _repeated(ctx, like, _INPUT, grad, w.mH)
        if needs_w and autograd.by_columns(ctx):
            grad_w = _repeated(ctx, like, _WEIGHT, x.conj(), grad).mT
        elif needs_w:
            grad_w = _repeated(ctx, like, _WEIGHT, grad, x.conj())
        if needs_bias:
            grad_bias = grad.sum(dim=tuple(range(grad.dim() - 1)))
        return grad_x, grad_w, grad_bias, None, None


#: ``apply`` less what it asks for the sake of ``torch.func``: 3 of 7 µs.
_apply = super(torch.autograd.Function, _Again).apply


class _Derivative(NamedTuple):
    """One product of a backward pass: how it is computed, also by torch, and found again.

    ``columns_of``: the axis of its right operand that is N.
    """

    computed: Callable[[torch.Tensor, torch.Tensor, str], torch.Tensor]
    torchs: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    request_of: RequestOf
    columns_of: int


_INPUT = _Derivative(
    lambda grad, w, options: autograd.linear(grad, w, None, options), F.linear, linear_request, 0
)
_WEIGHT = _Derivative(autograd.weight_grad, torchs_weight_grad, weight_grad_request, -1)


def _repeated(
    ctx: Any, like: Any, which: _Derivative, a: torch.Tensor, b: torch.Tensor
) -> torch.Tensor:
    """A product of the backward pass of a gradient ``like`` this one, as it ran before."""
    kept = ctx.known.derivatives
    seen, direct = kept.get(which.columns_of, (None, None))
    if seen == like:
        result = direct(a, b, None)
        if result is not None:
            return result
    result = which.computed(a, b, ctx.options)
    found = look_up(a, b, None, which.columns_of, decode(ctx.options))
    if found is TORCHS:
        kept[which.columns_of] = like, lambda a, b, _: which.torchs(a, b)
    elif type(found) is Known and found.request_of is which.request_of and found.direct:
        kept[which.columns_of] = like, found.direct
    return result
