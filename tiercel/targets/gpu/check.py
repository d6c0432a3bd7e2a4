"""What ``product`` and ``pack`` accept, and what they say when they do not."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.schemes import Scheme
from tiercel.targets.gpu.operand import NAMES


def operands(a: Tensor, b: Tensor) -> None:
    """Two matrices, or batches of them, on one GPU, of one floating or complex dtype."""
    for name, x in (("a", a), ("b", b)):
        matrix(name, x)
    if a.dtype != b.dtype or a.device != b.device:
        raise TiercelTypeError(
            f"a and b must have one dtype and one device: got {a.dtype} on {a.device} and "
            f"{b.dtype} on {b.device}; convert one of them"
        )
    if a.shape[-1] != b.shape[-2]:
        raise TiercelValueError(
            f"a {tuple(a.shape)} and b {tuple(b.shape)} do not fit: a has {a.shape[-1]} columns, "
            f"b has {b.shape[-2]} rows"
        )


def matrix(name: str, x: Tensor) -> None:
    """One operand."""
    if not isinstance(x, Tensor):
        raise TiercelTypeError(f"{name} must be a torch.Tensor: got {type(x).__name__}")
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if x.device.type != "cuda" and not interpreted:
        raise TiercelValueError(
            f"{name} must be on a GPU (device type 'cuda', which includes AMD): got {x.device}; "
            "move it there, or use tiercel.matmul, which also runs on the CPU"
        )
    if x.dtype not in NAMES:
        raise TiercelTypeError(f"{name} has dtype {x.dtype}; allowed: {', '.join(NAMES.values())}")
    if x.dim() < 2:
        raise TiercelValueError(
            f"{name} must have at least two dimensions: got shape {tuple(x.shape)}; add one "
            "with unsqueeze"
        )


def levels(scheme: Scheme | Sequence[Scheme], count: int) -> tuple[Scheme, ...]:
    """Schemes of all levels, outermost first."""
    if count < 1:
        raise TiercelValueError(
            f"levels must be at least 1: got {count}; use torch.matmul for the classical product"
        )
    return (scheme,) * count if isinstance(scheme, Scheme) else tuple(scheme) * count


def result(out: Tensor, shape: tuple[int, ...], a: Tensor) -> None:
    """``out`` of a product of ``shape`` with operands like ``a``."""
    if tuple(out.shape) != shape or out.dtype != a.dtype or out.device != a.device:
        raise TiercelValueError(
            f"out must be {shape}, {a.dtype}, on {a.device}: got {tuple(out.shape)}, {out.dtype}, "
            f"on {out.device}"
        )
    if any(stride == 0 and size > 1 for stride, size in zip(out.stride(), out.shape, strict=True)):
        raise TiercelValueError(
            f"out repeats memory (strides {out.stride()}): each element needs a place of its own"
        )


def real_scalar(name: str, x: float) -> float:
    """``alpha`` and ``beta``."""
    if isinstance(x, complex):
        raise TiercelTypeError(f"{name} must be a real number: got {x!r}; scale the result instead")
    return float(x)


def device(x: Tensor) -> AbstractContextManager[object]:
    """Context that makes the tensor's device current."""
    elsewhere = x.is_cuda and x.get_device() != torch.cuda.current_device()
    return torch.cuda.device(x.device) if elsewhere else nullcontext()
