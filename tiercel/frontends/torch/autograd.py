"""The product as a differentiable function, its derivatives made of products like itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from tiercel.frontends.torch.engine import Request, run
from tiercel.planner.plan import Plan


def differentiable(plan: Plan, request: Request) -> torch.Tensor:
    """``a @ b + bias`` that autograd can follow through a, b and bias, any number of times."""
    assert request.options.epilogue is None, "autograd needs the value before the epilogue"
    return _Product.apply(request.a, request.b, request.bias, plan, request)


class _Product(torch.autograd.Function):
    """Inputs as in ``Request``. A named scheme is the forward's: derivatives are planned anew."""

    @staticmethod
    def forward(a: Any, b: Any, bias: Any, plan: Plan, request: Request) -> torch.Tensor:
        return run(plan, request)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: torch.Tensor) -> None:
        a, b, _, _, request = inputs
        needs_a, needs_b, *_ = ctx.needs_input_grad
        # The input of a frozen weight is not kept: adapters count on that memory.
        ctx.save_for_backward(a if needs_b else None, b if needs_a else None)
        ctx.options = replace(request.options, scheme=None)
        ctx.b_by_columns = b.stride(-2) == 1

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        from tiercel.frontends.torch.matmul import matmul

        a, b = ctx.saved_tensors
        needs_a, needs_b, needs_bias, *_ = ctx.needs_input_grad
        grad_a = grad_b = grad_bias = None
        if needs_a:
            grad_a = matmul(grad, b.mH, None, None, ctx.options)
        if needs_b and ctx.b_by_columns:
            # b is a transposed weight: a gradient that lies like it accumulates without a copy.
            grad_b = matmul(grad.mT, a.conj(), None, None, ctx.options).mT
        elif needs_b:
            grad_b = matmul(a.mH, grad, None, None, ctx.options)
        if needs_bias:
            grad_bias = grad.sum(dim=tuple(range(grad.dim() - 1)))
        return grad_a, grad_b, grad_bias, None, None
