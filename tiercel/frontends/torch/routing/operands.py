"""Which products are computed here; the reason where torch computes them itself."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import torch
from torch._C import _functorch  # pyright: ignore[reportAttributeAccessIssue]
from torch.autograd import forward_ad
from torch.utils._device import DeviceContext

from tiercel.frontends.torch.engine import engine_for

_PLAIN = (torch.Tensor, torch.nn.Parameter)

#: Tensors of these types hold ordinary ones, and bring an operator of ours to them.
_DISTRIBUTED = (
    ("torch.distributed.tensor", "DTensor"),
    ("torch.distributed._functional_collectives", "AsyncCollectiveTensor"),
)


def _keys(x: torch.Tensor) -> int:
    return torch._C._dispatch_keys(x).raw_repr()


@cache
def _ordinary(device_type: str) -> int:
    """What an ordinary tensor of a device, also as a lazy view, may tell the dispatcher.

    Sparse, nested, quantized, zero, fake, functionalised and vmapped tensors all say more.
    """
    conjugate = torch.empty(1, dtype=torch.complex64, device="cpu").conj()
    keys = _keys(conjugate) | _keys(conjugate.imag)  # .imag of it is lazily negated
    if device_type == "cpu":
        return keys
    key, kinds = torch._C.DispatchKey, ("", "Autograd", "Autocast")
    for kind in kinds:
        name = f"{kind}{device_type.upper()}"
        keys |= torch._C.DispatchKeySet(getattr(key, name)).raw_repr()
    return keys


def why_torch(a: Any, b: Any, bias: Any, N: int, dtype: torch.dtype, insisted: bool) -> str:
    """Why torch computes the product of a (..., K) and N columns of b in ``dtype``; "" if not it.

    ``insisted`` says that the caller asked for a kernel of ours, which no product is too small for.
    """
    engine = engine_for(a.device.type)
    if engine is None:
        return f"tensors on {a.device.type}"
    least = engine.LEAST_WORK.get(dtype)
    if least is None:
        return f"a product in {dtype}"
    if a.dim() < 2:
        return "a vector operand"
    work = a.numel() * N
    if work == 0:
        return "an empty product"
    if work < least and not insisted:
        return "a product this small"
    allowed = _ordinary(a.device.type)
    for x in (a, b) if bias is None else (a, b, bias):
        if _keys(_innermost(x)) & ~allowed or x.device != a.device:
            return "tensors other than ordinary ones of one device"
    return "" if insisted else engine.why_not(dtype)


def _innermost(x: torch.Tensor) -> torch.Tensor:
    """The tensor inside the wrappers that ``torch.func`` puts around it."""
    while transformed() and _functorch.is_functorch_wrapped_tensor(x):
        x = _functorch.get_unwrapped(x)
    return x


def are_plain(*arguments: Any) -> bool:
    """Whether all that is not None are exact tensors or parameters, not subclasses."""
    return all(x is None or type(x) in _PLAIN for x in arguments)


def are_distributed(*arguments: Any) -> bool:
    """Whether some are tensors of ``torch.distributed`` and all others are plain."""
    kinds = tuple(
        getattr(sys.modules[module], name) for module, name in _DISTRIBUTED if module in sys.modules
    )
    foreign = [x for x in arguments if not are_plain(x)]
    return bool(foreign and kinds) and all(isinstance(x, kinds) for x in foreign)


def watched() -> bool:
    """Whether torch must see the product as an operation of its own: tracing, modes, dual numbers,
    ``functionalize``.

    The mode that ``torch.set_default_device`` leaves on is about new tensors only.
    """
    if torch._C._len_torch_dispatch_stack() > 0 or forward_ad._current_level >= 0:
        return True
    if transformed() and any(
        level.key() == _functorch.TransformType.Functionalize
        for level in _functorch.get_interpreter_stack() or ()
    ):  # which has no rule for an autograd.Function
        return True
    modes = torch._C._len_torch_function_stack()
    return modes > 0 and not all(
        isinstance(torch._C._get_function_stack_at(i), DeviceContext) for i in range(modes)
    )


def transformed() -> bool:
    """Whether the call runs inside ``torch.func`` transforms."""
    return torch._C._are_functorch_transforms_active()


def followed(*operands: torch.Tensor | None) -> bool:
    """Whether autograd or a transform of ``torch.func`` has to know the product."""
    if transformed():
        return True
    if torch.is_grad_enabled():
        for x in operands:  # any() and its generator take 0.5 us longer
            if x is not None and x.requires_grad:
                return True
    return False
