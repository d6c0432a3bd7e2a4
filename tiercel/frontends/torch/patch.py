"""``patch``: a model whose linear layers run here, otherwise unchanged; ``unpatch`` undoes it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from tiercel.errors import TiercelTypeError
from tiercel.frontends.torch.forward import PlannedForward, planned_forward
from tiercel.frontends.torch.frozen import packable
from tiercel.frontends.torch.operands import LEAST_WORK, torch_is_fast_in
from tiercel.frontends.torch.report import Layer, Report
from tiercel.options import Options

Filter = Callable[[str, nn.Linear], bool]


def patch(
    model: nn.Module, filter: Filter | None, options: Options, pack_weights: bool, dry_run: bool
) -> Report:
    """See ``tiercel.patch``."""
    _check_model(model)
    layers = [
        _patch_layer(name, module, filter, options, pack_weights, dry_run)
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear)
    ]
    return Report(tuple(layers), dry_run, model)


def unpatch(model: nn.Module) -> None:
    """See ``tiercel.unpatch``."""
    _check_model(model)
    for module in model.modules():
        if planned_forward(module):
            del vars(module)["forward"]


def _patch_layer(
    name: str,
    module: nn.Linear,
    filter: Filter | None,
    options: Options,
    pack_weights: bool,
    dry_run: bool,
) -> Layer:
    reason = _why_not(module) or ("not chosen by filter" if _left_out(filter, name, module) else "")
    packed_bytes, decision = 0, f"left alone: {reason}"
    if not reason:
        decision = "patched"
        if pack_weights and not packable(module.weight):
            decision += ", not packed: " + (
                "the weight is not frozen (requires_grad)"
                if module.weight.requires_grad
                else f"no packed form of {module.weight.dtype}"
            )
        if not dry_run:
            forward = PlannedForward(module, options, pack_weights)
            if forward.frozen is not None:
                forward.frozen.packed(module.weight)
                packed_bytes = forward.frozen.nbytes
            module.forward = forward
    N, K = module.out_features, module.in_features
    return Layer(name, N, K, module.weight.dtype, not reason, decision, packed_bytes)


def _why_not(module: nn.Linear) -> str:
    """Why a layer keeps the forward it has; "" if it can be patched."""
    if type(module) is not nn.Linear:
        return f"a {type(module).__name__} is not exactly nn.Linear and may compute something else"
    if any(module.children()):
        return "it has submodules"
    own = vars(module).get("forward")
    if own and not planned_forward(module) and _function(own) is not nn.Linear.forward:
        return "another library has replaced its forward"
    weight = module.weight
    if weight.device.type != "cpu":
        return f"its weight is on {weight.device}, only CPU tensors are accelerated"
    if weight.dtype not in LEAST_WORK:
        return f"{weight.dtype} is not accelerated"
    if weight.dtype.itemsize == 2 and torch_is_fast_in(weight.dtype):
        return f"torch has kernels of its own for {weight.dtype} on this processor"
    return ""


def _left_out(filter: Filter | None, name: str, module: nn.Linear) -> bool:
    return filter is not None and not filter(name, module)


def _function(method: object) -> object:
    return getattr(method, "__func__", None)


def _check_model(model: object) -> None:
    if not isinstance(model, torch.nn.Module):
        raise TiercelTypeError(f"model is a {type(model).__name__}; allowed: a torch.nn.Module")
