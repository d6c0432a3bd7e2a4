"""``torch.autocast`` on the CPU: the conversions that torch applies to a product's operands."""

from __future__ import annotations

import torch


def product_dtype(a: torch.Tensor, b: torch.Tensor) -> torch.dtype | None:
    """The dtype in which torch multiplies a and b; None where it refuses to."""
    first, second = _seen(a), _seen(b)
    return first if first is second else None


def converted(x: torch.Tensor) -> torch.Tensor:
    """x as torch's own product would see it; differentiable."""
    return x.to(_seen(x))


def _seen(x: torch.Tensor) -> torch.dtype:
    # Autocast leaves float64 and all that is not floating point alone.
    if x.dtype is torch.float64 or not torch.is_autocast_enabled("cpu"):
        return x.dtype
    return torch.get_autocast_dtype("cpu") if x.is_floating_point() else x.dtype
