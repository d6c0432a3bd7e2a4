"""Where a call goes: to a plan of ours, or to torch and why."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from tiercel.frontends.torch.engine import ENGINES
from tiercel.frontends.torch.routing.operands import are_plain, watched, why_torch
from tiercel.frontends.torch.tensors.autocast import product_dtype
from tiercel.options import Options


def why_left_to_torch(
    a: Any, b: Any, bias: Any, out: Any, options: Options, columns_of: int
) -> str:
    """The reason for torch's own product, "" if a plan may gain; ``columns_of``: axis of b's N."""
    if torch._C._is_tracing():
        return "calls that torch traces"
    if a is None or b is None or not are_plain(a, b, bias, out):
        return "tensor subclasses and other types"
    if options.scheme == "vendor":
        return "the vendor's product"
    if a.is_nested or b.is_nested:
        return "nested tensors"
    if b.dim() < 2:
        return "a vector operand"
    if a.device.type not in ENGINES:
        return f"tensors on {a.device.type}"
    dtype = product_dtype(a, b)
    if dtype is None or not (out is None or out.dtype is dtype):
        return f"operands of dtypes {a.dtype} and {b.dtype}"
    reason = why_torch(a, b, bias, b.shape[columns_of], dtype, insisted(options))
    return reason or ("calls that torch traces or transforms" if watched() else "")


def insisted(options: Options) -> bool:
    """Whether the caller asked for a kernel of ours, which no product is too small for."""
    return options.scheme is not None or options.batch_invariant


def in_training(w: Any, options: Options) -> Options:
    """The options of a product whose weight w may be trained, see ``without_schemes``."""
    exact = type(w) is torch.Tensor or type(w) is torch.nn.Parameter
    return without_schemes(options) if exact and is_trained(w) else options


def is_trained(w: torch.Tensor) -> bool:
    """Whether autograd follows a weight of 16 bits."""
    return w.requires_grad and w.dtype.itemsize == 2 and torch.is_grad_enabled()


@lru_cache(maxsize=256)
def without_schemes(options: Options) -> Options:
    """The options of 16-bit products in training: by no scheme, unless asked for.

    All operands change from step to step and are combined in each product, and products follow one
    another at the clock that power allows. Linear layers of Llama 3 8B, 16384 tokens: 1.038 times
    torch's speed without schemes, 1.025 with them.
    """
    asked = options.accuracy != "standard" or insisted(options)
    return options if asked else options.with_accuracy("classical")
