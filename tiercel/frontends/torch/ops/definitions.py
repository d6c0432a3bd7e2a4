"""The operators of torch.library: ``tiercel::linear``, ``matmul`` and ``weight_grad``.

They are what compiled and exported graphs, autograd and ``torch.distributed`` see of a product.
Importing this module defines them; graphs that were stored need it imported before they run.
Options come as text (``option_text.py``). Results are new and contiguous.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode

from tiercel.frontends.torch.engine import Request
from tiercel.frontends.torch.ops import autograd, batched, epilogue, lowered
from tiercel.frontends.torch.ops.option_text import decode
from tiercel.frontends.torch.products import (
    computed,
    linear_request,
    matmul_request,
    weight_grad_request,
)
from tiercel.frontends.torch.routing import repeated
from tiercel.frontends.torch.routing.operands import why_torch
from tiercel.frontends.torch.routing.repeated import RequestOf
from tiercel.frontends.torch.routing.route import insisted
from tiercel.frontends.torch.routing.shortcut import TORCHS, leave_to_torch, look_up
from tiercel.frontends.torch.routing.torchs_own import (
    refuse,
    torchs_linear,
    torchs_matmul,
    torchs_weight_grad,
)
from tiercel.frontends.torch.tensors.autocast import autocast_kernel

#: Whether a tiercel that was imported before this one, or reloaded, has defined them: torch takes
#: an operator once, and the earlier ones go on multiplying.
_DEFINED = hasattr(torch.ops.tiercel, "linear")

if not _DEFINED:
    LIBRARY = torch.library.Library("tiercel", "DEF")

_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout)


@dataclass(frozen=True)
class Operator:
    """All that torch is told about one operator.

    ``columns_of`` is the axis of the second operand that is N; ``torchs`` is the product as torch
    writes it, ``request`` as an engine gets it; ``shape`` checks the operands and gives the
    result's shape; ``function`` differentiates, ``batch`` is its rule for vmap, ``gains`` whether a
    compiler's graph keeps it.
    """

    schema: str
    columns_of: int
    torchs: Callable[..., torch.Tensor]
    request: RequestOf
    shape: Callable[..., tuple[Any, ...]]
    function: Any
    batch: Callable[..., Any]
    gains: Callable[..., bool]


def _linear_shape(x: Any, w: Any, bias: Any, options: str) -> tuple[Any, ...]:
    _check(x.shape[-1] == w.shape[1] and x.dtype == w.dtype, "linear", x, w)
    _check(bias is None or bias.shape == w.shape[:1], "linear", bias, w)
    return (*x.shape[:-1], w.shape[0])


def _matmul_shape(a: Any, b: Any, bias: Any, options: str) -> tuple[Any, ...]:
    _check(a.shape[-1] == b.shape[-2] and a.dtype == b.dtype, "matmul", a, b)
    return (*a.shape[:-1], b.shape[-1])


def _weight_grad_shape(g: Any, x: Any, options: str) -> tuple[Any, ...]:
    _check(g.shape[:-1] == x.shape[:-1] and g.dtype == x.dtype, "weight_grad", g, x)
    return g.shape[-1], x.shape[-1]


def _check(fits: Any, name: str, a: Any, b: Any) -> None:
    torch._check(
        fits,
        lambda: (
            f"tiercel::{name} of {a.dtype} {tuple(a.shape)} and {b.dtype} {tuple(b.shape)}: shapes "
            "do not fit, or dtypes differ"
        ),
    )


OPERATORS = {
    "linear": Operator(
        "(Tensor x, Tensor w, Tensor? bias, str options) -> Tensor",
        columns_of=0,
        torchs=lambda x, w, bias, text: torchs_linear(x, w, bias, decode(text)),
        request=linear_request,
        shape=_linear_shape,
        function=autograd.Linear,
        batch=batched.linear,
        gains=lowered.linear_gains,
    ),
    "matmul": Operator(
        "(Tensor a, Tensor b, Tensor? bias, str options) -> Tensor",
        columns_of=-1,
        torchs=lambda a, b, bias, text: torchs_matmul(a, b, bias, decode(text)),
        request=matmul_request,
        shape=_matmul_shape,
        function=autograd.Matmul,
        batch=batched.matmul,
        gains=lowered.matmul_gains,
    ),
    "weight_grad": Operator(
        "(Tensor g, Tensor x, str options) -> Tensor",
        columns_of=-1,
        torchs=lambda g, x, text: torchs_weight_grad(g, x),
        request=weight_grad_request,
        shape=_weight_grad_shape,
        function=autograd.WeightGrad,
        batch=batched.weight_grad,
        gains=lowered.weight_grad_gains,
    ),
}


def _why_torch(request: Request) -> str:
    a, b, options = request.a, request.b, request.options
    return why_torch(a, b, request.bias, b.shape[-1], a.dtype, insisted(options))


def _kernel(op: Operator) -> Callable[..., torch.Tensor]:
    """The operator on tensors of any device: a plan of ours, or torch's product."""

    def kernel(*arguments: Any) -> torch.Tensor:
        (a, b), options = arguments[:2], decode(arguments[-1])
        bias = arguments[2] if len(arguments) > 3 else None
        known = look_up(a, b, bias, op.columns_of, options)
        if known is TORCHS:
            return op.torchs(*arguments).contiguous()
        if known is not None:
            result = repeated.run(known, op.request, a, b, bias, options)
            if result is not None:
                return result
        request = op.request(a, b, bias, options) if a.dtype is b.dtype else None
        reason = "operands that do not fit" if request is None else _why_torch(request)
        if request is not None and not reason:
            result = computed(request, op.shape(*arguments))
            if result is not None:
                repeated.remember(a, b, bias, op.columns_of, request, op.request, result)
                return result
        refuse(options, reason, a)
        if not reason:
            leave_to_torch(a, b, bias, op.columns_of, options)
        return op.torchs(*arguments).contiguous()

    return kernel


def _fake(op: Operator) -> Callable[..., torch.Tensor]:
    def kernel(*arguments: Any) -> torch.Tensor:
        return arguments[0].new_empty(op.shape(*arguments))

    return kernel


def _register(name: str, op: Operator, kernel: Callable[..., torch.Tensor]) -> None:
    # Two overloads: what everyone calls, and ``run``, which a compiler's graph holds. That is below
    # autograd, and an operator without kernels for it is called 10 us sooner.
    for overload in (name, f"{name}.run"):
        LIBRARY.define(overload + op.schema, tags=_TAGS)
        LIBRARY.impl(overload, kernel, "CompositeExplicitAutograd")  # of every device
        torch.library.register_fake(f"tiercel::{overload}", _fake(op), lib=LIBRARY)
    packet = getattr(torch.ops.tiercel, name)
    operator, qualified = packet.default, f"tiercel::{name}"
    for device in ("cpu", "cuda"):
        LIBRARY.impl(name, autocast_kernel(operator, device), f"Autocast{device.upper()}")
    followed = autograd.autograd_kernel(op.function, operator, op.torchs)
    LIBRARY.impl(name, followed, "Autograd", with_keyset=True)
    torch.library.register_vmap(qualified, op.batch, lib=LIBRARY)
    rule = lowered.lowering(packet.run, op.gains, op.torchs)
    torch.library.register_torch_dispatch(qualified, ProxyTorchDispatchMode, rule, lib=LIBRARY)


for _name, _op in OPERATORS.items():
    _made = _kernel(_op)
    if not _DEFINED:
        _register(_name, _op, _made)
    autograd.kernels[getattr(torch.ops.tiercel, _name)] = _made
if not _DEFINED:
    epilogue.register(LIBRARY)
