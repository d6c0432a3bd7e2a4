"""Which products are computed here; the reason where torch computes them itself."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch.autograd import forward_ad

#: Multiplications below which a product goes to torch at once, by dtype. In float32 torch needs
#: 0.2 ms for this much, and no plan was seen to gain below it; its 16-bit products need 10 times
#: longer where the processor has no instructions for them.
LEAST_WORK = {
    torch.float32: 192**3,
    torch.float64: 160**3,
    torch.complex64: 128**3,
    torch.complex128: 96**3,
    torch.bfloat16: 96**3,
    torch.float16: 96**3,
}

_PLAIN = (torch.Tensor, torch.nn.Parameter)


def _keys(x: torch.Tensor) -> int:
    return torch._C._dispatch_keys(x).raw_repr()


# What an ordinary CPU tensor, also as a lazily conjugated or negated view, tells the dispatcher.
# Sparse, nested, quantized, zero, fake, functionalised and vmapped tensors all say more.
_conjugate = torch.empty(1, dtype=torch.complex64).conj()
_ORDINARY = _keys(_conjugate) | _keys(_conjugate.imag)


def why_torch(a: Any, b: Any, bias: Any, N: int, dtype: torch.dtype, large: bool) -> str:
    """Why torch computes the product of a (..., K) and N columns of b in ``dtype``; "" if not it.

    ``large`` says that the caller insists, so that no product is too small.
    """
    if torch._C._is_tracing():
        return "calls that torch traces"
    if dtype not in LEAST_WORK:
        return f"a product in {dtype}"
    if a.dim() < 2:
        return "a vector operand"
    work = a.numel() * N
    if work == 0 or (work < LEAST_WORK[dtype] and not large):
        return "a product this small"
    for x in (a, b) if bias is None else (a, b, bias):
        if _keys(x) & ~_ORDINARY:
            return "tensors other than ordinary CPU tensors"
    if watched():
        return "calls that torch traces or transforms"
    if dtype.itemsize == 2 and not dtype.is_complex and torch_is_fast_in(dtype):
        return f"{dtype} on a processor for which torch has kernels of its own"
    return ""


def are_plain(*arguments: Any) -> bool:
    """Whether all that is not None are exact tensors or parameters, not subclasses."""
    return all(x is None or type(x) in _PLAIN for x in arguments)


def watched() -> bool:
    """Whether torch must see the product as an operation of its own: tracing, modes, transforms."""
    return (
        torch._C._len_torch_dispatch_stack() > 0
        or torch._C._len_torch_function_stack() > 0
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
    )


@cache
def torch_is_fast_in(dtype: torch.dtype) -> bool:
    """Whether torch's own 16-bit product is more than a loop on this processor."""
    if not torch.backends.mkldnn.is_available():
        return False
    if dtype is torch.bfloat16:
        return torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return torch.ops.mkldnn._is_mkldnn_fp16_supported()
