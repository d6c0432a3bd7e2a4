"""``torch.autocast``: the conversions that torch applies to a product's operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def product_dtype(a: torch.Tensor, b: torch.Tensor) -> torch.dtype | None:
    """The dtype in which torch multiplies a and b; None where it refuses to."""
    first, second = _seen(a), _seen(b)
    return first if first is second else None


def converted(x: torch.Tensor) -> torch.Tensor:
    """x as torch's own product would see it; differentiable."""
    return x.to(_seen(x))


def _seen(x: torch.Tensor) -> torch.dtype:
    device = x.device.type
    # Autocast leaves float64 and all that is not floating point alone.
    if x.dtype is torch.float64 or not torch.is_autocast_enabled(device):
        return x.dtype
    return torch.get_autocast_dtype(device) if x.is_floating_point() else x.dtype


def autocast_kernel(operator: Any, device_type: str) -> Callable[..., torch.Tensor]:
    """What the dispatcher runs for an operator under autocast: it converts, then calls again."""
    key = torch._C.DispatchKey
    here = torch._C.DispatchKeySet(getattr(key, f"Autocast{device_type.upper()}"))

    def kernel(*arguments: Any) -> torch.Tensor:
        seen = [converted(x) if isinstance(x, torch.Tensor) else x for x in arguments]
        with torch._C._ExcludeDispatchKeyGuard(here):
            return operator(*seen)

    return kernel
