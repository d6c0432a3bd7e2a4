"""``target="hopper"``: the own kernels multiply, or an error says why they cannot."""

from __future__ import annotations

from typing import Any

import torch

from tiercel.errors import (
    TiercelError,
    TiercelRuntimeError,
    TiercelTypeError,
    TiercelValueError,
)
from tiercel.frontends.torch.epilogues.traced import evaluated, received
from tiercel.frontends.torch.routing.operands import are_plain, followed, watched
from tiercel.frontends.torch.tensors.autocast import converted
from tiercel.frontends.torch.tensors.fold import folded
from tiercel.frontends.torch.tensors.out import into, writable_in_place
from tiercel.frontends.torch.tensors.precision import in_tf32
from tiercel.lower.epilogue import Given
from tiercel.lower.epilogue.affine import around, as_given
from tiercel.options import Options
from tiercel.targets import hopper
from tiercel.targets.hopper.epilogues.product import gemm_epilogue
from tiercel.targets.hopper.products.product import gemm


def matmul(a: Any, b: Any, out: Any, bias: Any, options: Options) -> Any:
    """``epilogue(a @ b + bias)`` by the kernel; see ``tiercel.matmul``. Batches broadcast.

    Differentiable: the backward products run by the kernel too where their layouts allow it, and an
    epilogue that is followed is torch's operations.
    """
    if out is None and bias is None and _is_known(a, b, options):
        return gemm(a, b, tf32=in_tf32(a))
    check(a, b, options)
    given = as_given(around(options.epilogue, 1.0, 0.0, None, bias))
    a, b = converted(a), converted(b)
    values = [] if given is None else [x for x in given.operands.values() if _is_tensor(x)]
    if followed(a, b, *values):
        acc: Any = _Product.apply(a, b)
        return into(out, acc) if given is None else received(given, evaluated(given, acc), out)
    if given is not None:
        return received(given, _with_epilogue(a, b, given), out)
    if out is not None and a.dim() == b.dim() == 2 and writable_in_place(out, a, b):
        return gemm(a, b, out=out, tf32=in_tf32(a))
    result = into(out, product(a, b))
    if len(_known) >= MOST_KNOWN:
        _known.clear()
    _known[id(options), a.dtype, a.get_device()] = options  # kept: no other will have its id
    return result


#: Options with which matrices of a dtype were multiplied on a device: 20 µs of looking at a call.
_known: dict[tuple[int, torch.dtype, int], Options] = {}
MOST_KNOWN = 1024


def _is_known(a: Any, b: Any, options: Options) -> bool:
    """Whether only the kernel itself has to look at a and b."""
    return (
        type(a) is torch.Tensor
        and type(b) is torch.Tensor
        and a.dim() == b.dim() == 2
        and (id(options), a.dtype, a.get_device()) in _known
        and a.numel() * b.numel() > 0
        and not torch.is_autocast_enabled("cuda")
        and not watched()
        and not followed(a, b)
    )


def check(a: Any, b: Any, options: Options) -> None:
    """Raise unless the kernels may multiply a and b, as asked."""
    for name, x in (("a", a), ("b", b)):
        if not are_plain(x) or not x.is_cuda or x.dim() < 2 or x.numel() == 0:
            kind = f"{tuple(x.shape)} on {x.device}" if _is_tensor(x) else "of another kind"
            raise TiercelTypeError(
                f"target='hopper' multiplies ordinary CUDA tensors of two axes or more, none of "
                f"length 0; {name} is a {type(x).__name__} {kind}. Pass such tensors, or leave "
                "target out"
            )
    reason = hopper.available(a.get_device())
    if reason is not None:
        raise TiercelRuntimeError(
            f"target='hopper' cannot run: {reason}. Leave target out for whatever is fastest there"
        )
    if options.scheme not in (None, "classical") or options.verify or options.batch_invariant:
        raise TiercelTypeError(
            "target='hopper' is the classical kernel; leave scheme, verify and batch_invariant out "
            "(scheme='classical' is allowed), or target"
        )
    if torch.compiler.is_compiling() or watched():
        raise TiercelTypeError(
            "target='hopper' launches a kernel that torch does not trace; leave target out there"
        )


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A·B of any number of batch axes, of a's dtype (bfloat16 for float8)."""
    pair = folded(a, b)
    if pair is None:
        raise TiercelValueError(
            f"a {tuple(a.shape)} and b {tuple(b.shape)} have no product; the inner dimensions must "
            "agree, and batch axes agree or be 1"
        )
    left, right, unfold = pair
    return unfold(gemm(left, right, tf32=in_tf32(a)))


def _with_epilogue(a: torch.Tensor, b: torch.Tensor, given: Given) -> dict[str, torch.Tensor]:
    if max(a.dim(), b.dim()) > 3 or a.dtype.itemsize not in (1, 2):
        raise TiercelTypeError(
            f"target='hopper' takes epilogues after products with one batch axis at most, of 8 or "
            f"16 bits; a is {a.dtype} {tuple(a.shape)}. Reshape, or leave target out"
        )
    return gemm_epilogue(a, b, given.epilogue, given.operands)


def _is_tensor(x: Any) -> bool:
    return isinstance(x, torch.Tensor)


class _Product(torch.autograd.Function):
    """∂a = g bᵀ and ∂b = aᵀ g, summed over the axes that were broadcast."""

    @staticmethod
    def forward(ctx: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.save_for_backward(a, b)
        return product(a, b)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        a, b = ctx.saved_tensors
        needs_a, needs_b = ctx.needs_input_grad
        return (
            _either(grad, b.mT).sum_to_size(a.shape) if needs_a else None,
            _either(a.mT, grad).sum_to_size(b.shape) if needs_b else None,
        )


def _either(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """By the kernel, or by torch where a layout or another derivative is not for it."""
    if not followed(a, b):
        try:
            return product(a, b)
        except TiercelError:
            pass
    return a @ b
