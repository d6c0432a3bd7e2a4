"""The operators' derivatives, made of the operators themselves: differentiable any number of times.

Each product is an ``autograd.Function`` around its operator below autograd. With g the gradient of
the result: y = x wᵀ has ∂x = g w̄ and ∂w = gᵀ x̄; c = a b has ∂a = g bᴴ and ∂b = aᴴ g.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad

from tiercel.frontends.torch.epilogues.named import with_epilogue
from tiercel.frontends.torch.ops.option_text import decode, of_derivatives, without_epilogue
from tiercel.frontends.torch.routing.operands import are_plain, followed, transformed, watched

#: What computes each operator, on tensors of any device.
kernels: dict[Any, Callable[..., torch.Tensor]] = {}


class _Product(torch.autograd.Function):
    """What the functions below share: two operands, optional bias, the options' text."""

    generate_vmap_rule = True

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: torch.Tensor) -> None:
        a, b, *_, options = inputs
        needs_a, needs_b, *_ = ctx.needs_input_grad
        # The input of a frozen weight is not kept: adapters count on that memory.
        ctx.save_for_backward(a if needs_b else None, b if needs_a else None)
        # Gradients of 16 bits are too small for a scheme that may not remember how small.
        classical = a.dtype.itemsize == 2 and torch.are_deterministic_algorithms_enabled()
        ctx.options = of_derivatives(options, classical)
        ctx.b_strides = b.stride()[-2:]


class Linear(_Product):
    """x (..., K), w (N, K), bias (N,) or None -> (..., N)."""

    @staticmethod
    def forward(x: Any, w: Any, bias: Any, options: str) -> torch.Tensor:
        return _below_autograd(torch.ops.tiercel.linear, x, w, bias, options)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, w = ctx.saved_tensors
        needs_x, needs_w, needs_bias, *_ = ctx.needs_input_grad
        grad_x = grad_w = grad_bias = None
        if needs_x:
            grad_x = linear(grad, w.mH, None, ctx.options)
        if needs_w and by_columns(ctx):
            # w is a transposed parameter: a gradient that lies like it accumulates without a copy.
            grad_w = weight_grad(x.conj(), grad, ctx.options).mT
        elif needs_w:
            grad_w = weight_grad(grad, x.conj(), ctx.options)
        if needs_bias:
            grad_bias = grad.sum(dim=tuple(range(grad.dim() - 1)))
        return grad_x, grad_w, grad_bias, None


class WeightGrad(_Product):
    """g (..., N), x (..., K) -> gᵀ x (N, K), summed over all leading axes."""

    @staticmethod
    def forward(g: Any, x: Any, options: str) -> torch.Tensor:
        return _below_autograd(torch.ops.tiercel.weight_grad, g, x, options)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        g, x = ctx.saved_tensors
        needs_g, needs_x, _ = ctx.needs_input_grad
        grad_g = linear(x.conj(), grad, None, ctx.options) if needs_g else None
        grad_x = linear(g.conj(), grad.mT, None, ctx.options) if needs_x else None
        return grad_g, grad_x, None


class Matmul(_Product):
    """a (M, K), b (K, N) or stacks of as many of each, bias (N,) or None."""

    @staticmethod
    def forward(a: Any, b: Any, bias: Any, options: str) -> torch.Tensor:
        return _below_autograd(torch.ops.tiercel.matmul, a, b, bias, options)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        a, b = ctx.saved_tensors
        needs_a, needs_b, needs_bias, _ = ctx.needs_input_grad
        grad_a = grad_b = grad_bias = None
        if needs_a:
            grad_a = matmul(grad, b.mH, None, ctx.options)
        if needs_b and by_columns(ctx):
            grad_b = matmul(grad.mT, a.conj(), None, ctx.options).mT
        elif needs_b:
            grad_b = matmul(a.mH, grad, None, ctx.options)
        if needs_bias:
            grad_bias = grad.sum(dim=tuple(range(grad.dim() - 1)))
        return grad_a, grad_b, grad_bias, None


def _eager(product: type[_Product]) -> Any:
    """The same outside of ``torch.func``.

    Of a function with a ``setup_context`` torch binds the arguments of each call by ``inspect``,
    which takes 80 of its 130 us.
    """

    def forward(ctx: Any, *inputs: Any) -> torch.Tensor:
        output = product.forward(*inputs)
        product.setup_context(ctx, inputs, output)
        return output

    members = {"forward": staticmethod(forward), "backward": staticmethod(product.backward)}
    return type(product)(product.__name__, (torch.autograd.Function,), members)


_EAGER = {product: _eager(product) for product in (Linear, WeightGrad, Matmul)}


def by_columns(ctx: Any) -> bool:
    """Whether the right operand is stored by columns, as its gradient then is."""
    down, across = ctx.b_strides
    return down == 1 and across != 1


def linear(x: Any, w: Any, bias: Any, options: str, by_function: bool = False) -> torch.Tensor:
    """``Linear``, then the epilogue; differentiable where it is called, ``torch.func`` included.

    ``by_function``: autograd follows it here, so that the dispatcher need not be asked.
    """
    return _called(Linear, torch.ops.tiercel.linear, by_function, x, w, bias, options)


def weight_grad(g: Any, x: Any, options: str) -> torch.Tensor:
    """``WeightGrad``, differentiable as ``linear``."""
    return _called(WeightGrad, torch.ops.tiercel.weight_grad, False, g, x, options)


def matmul(a: Any, b: Any, bias: Any, options: str, by_function: bool = False) -> torch.Tensor:
    """``Matmul``, then the epilogue; differentiable as ``linear``."""
    return _called(Matmul, torch.ops.tiercel.matmul, by_function, a, b, bias, options)


def _called(
    function: type[_Product], operator: Any, by_function: bool, *arguments: Any
) -> torch.Tensor:
    # A Function differentiates at every level of torch.func; an operator's kernel cannot.
    level = transformed() and forward_ad._current_level < 0 and not torch.compiler.is_compiling()
    if by_function or level:
        return _followed(function, *arguments)
    *operands, _ = arguments
    if not followed(*operands) and only_computed(*operands):
        return kernels[operator](*arguments)
    return operator(*arguments)


def _below_autograd(operator: Any, *arguments: Any) -> torch.Tensor:
    *operands, _ = arguments
    if only_computed(*operands):
        return kernels[operator](*arguments)
    with torch._C._AutoDispatchBelowAutograd():
        return operator(*arguments)


def only_computed(*operands: Any) -> bool:
    """Whether a product that autograd does not follow is computed, and nothing else sees it.

    Then it is left to the operator's kernel at once: torch's dispatcher takes 9 µs of a call, and
    15 where it asks autograd's kernel first.
    """
    return not (
        torch.compiler.is_compiling()
        or transformed()
        or watched()
        or torch._C._is_any_autocast_enabled()
        or not are_plain(*operands)
    )


def _followed(function: type[_Product], *arguments: Any) -> torch.Tensor:
    """The function, then the epilogue: autograd needs the value before it."""
    *operands, options = arguments
    made: Any = function if transformed() else _EAGER[function]
    return with_epilogue(made.apply(*operands, without_epilogue(options)), decode(options).epilogue)


def autograd_kernel(
    function: type[_Product], operator: Any, torchs: Callable[..., torch.Tensor]
) -> Callable[..., torch.Tensor]:
    """What the dispatcher runs for an operator where autograd may have to follow it.

    Dual numbers and the transforms of ``torch.func`` see ``torchs``, the same product as torch
    writes it, whose derivatives of every kind torch knows.
    """

    def kernel(keys: Any, *arguments: Any) -> torch.Tensor:
        if transformed() or forward_ad._current_level >= 0:
            return torchs(*arguments)
        if torch.is_grad_enabled() and any(
            isinstance(x, torch.Tensor) and x.requires_grad for x in arguments
        ):
            return _followed(function, *arguments)
        return operator.redispatch(keys & torch._C._after_autograd_keyset, *arguments)

    return kernel
