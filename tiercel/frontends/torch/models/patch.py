"""``patch``: a model whose linear layers run here, otherwise unchanged; ``unpatch`` undoes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

from tiercel.errors import TiercelTypeError
from tiercel.frontends.torch.engine import engine_for
from tiercel.frontends.torch.models.forward import (
    PlannedConv1D,
    PlannedForward,
    Replicate,
    planned_forward,
)
from tiercel.frontends.torch.models.frozen import why_not_packable
from tiercel.frontends.torch.models.layers import Kind, kind_of
from tiercel.frontends.torch.models.report import Entry, Report
from tiercel.frontends.torch.ops.sharding import register_sharding_rules
from tiercel.frontends.torch.routing import shortcut
from tiercel.frontends.torch.routing.route import insisted
from tiercel.options import Options

Filter = Callable[[str, Any], bool]


def patch(
    model: nn.Module, filter: Filter | None, options: Options, pack_weights: bool, dry_run: bool
) -> Report:
    """See ``tiercel.patch``."""
    register_sharding_rules()  # a compiled model cannot do it when it runs
    shortcut.forget()  # packed weights make other plans
    entries = []
    # All reasons before the first change: a filter that raises leaves the model as it was.
    layers = [(*found, _reason(*found, filter, options)) for found in _linear_layers(model)]
    for name, module, kind, reason in layers:
        note, forward, before = "", None, planned_forward(module)
        if not reason:
            w = kind.weight(module)
            note = _why_not_packed(w, options) if pack_weights else ""
            kept = PlannedConv1D if kind.transposed else PlannedForward
            forward = kept(module, options, pack_weights and not options.batch_invariant)
            if not dry_run:
                module.forward = forward
                module._replicate_for_data_parallel = Replicate(module)
                if pack_weights and not note:
                    forward.pack(w)
        entries.append(Entry(name, module, kind, reason, note, forward, before))
    return Report(tuple(entries), options, dry_run)


def unpatch(model: nn.Module) -> None:
    """See ``tiercel.unpatch``."""
    _check_model(model)
    for module in model.modules():
        give_back(module, None)


def give_back(module: nn.Module, before: PlannedForward | None) -> None:
    """Take a layer's planned forward away, if it has one; ``before`` is put in its place."""
    forward = planned_forward(module)
    if forward is None:
        return
    for planned in (forward, before):
        if planned is not None and planned.frozen is not None:
            planned.frozen.release()  # of ``before``: packed again when it is used
    if before is None:
        del vars(module)["forward"]
        vars(module).pop("_replicate_for_data_parallel", None)
    else:
        vars(module)["forward"] = before


def _linear_layers(model: nn.Module) -> Iterator[tuple[str, Any, Kind]]:
    _check_model(model)
    for name, module in model.named_modules():
        kind = kind_of(module)
        if kind is not None:
            yield name, module, kind


def _reason(name: str, module: Any, kind: Kind, filter: Filter | None, options: Options) -> str:
    reason = _why_not(module, kind, options)
    if not reason and filter is not None and not filter(name, module):
        return "not chosen by filter"
    return reason


def _why_not(module: Any, kind: Kind, options: Options) -> str:
    """Why a layer keeps the forward it has; "" if it can be patched."""
    if type(module).forward is not kind.cls.forward:
        return f"a {type(module).__name__} has a forward of its own"
    if any(module.children()) and not _only_parametrized(module):
        return "it has submodules"
    own = vars(module).get("forward")
    method = getattr(own, "__func__", None)
    if own is not None and not planned_forward(module) and method is not kind.cls.forward:
        return "another library has replaced its forward"
    w = module.weight
    engine = engine_for(w.device.type)
    if engine is None:
        return f"its weight is on {w.device}, where torch multiplies"
    if w.dtype not in engine.LEAST_WORK:
        return f"{w.dtype} is not accelerated"
    return "" if insisted(options) else engine.why_not(w.dtype)


def _only_parametrized(module: nn.Module) -> bool:
    """Whether all submodules only make the weight, as ``torch.nn.utils.parametrize`` adds them."""
    return [name for name, _ in module.named_children()] == ["parametrizations"]


def _why_not_packed(w: Any, options: Options) -> str:
    return "batch_invariant" if options.batch_invariant else why_not_packable(w)


def _check_model(model: object) -> None:
    if not isinstance(model, nn.Module):
        raise TiercelTypeError(f"model is a {type(model).__name__}; allowed: a torch.nn.Module")
