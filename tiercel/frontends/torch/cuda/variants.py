"""The ways to run a product on CUDA tensors: a scheme around the vendor's library or inside the own
kernel, and that kernel alone. Each computes ``epilogue(a @ b + bias)`` into ``out`` by a plan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tiercel.frontends.torch.cuda import fused as fused_weights
from tiercel.frontends.torch.cuda.ending import finish, traced
from tiercel.frontends.torch.cuda.refusals import Refusals, of_site
from tiercel.frontends.torch.engine import Request
from tiercel.planner.gpu import GpuPlan


def portable(plan: GpuPlan, request: Request, out: torch.Tensor) -> None:
    """By a scheme around the vendor's library."""
    from tiercel.targets.gpu import product

    a, packed = bare(request.a), request.packed
    b = bare(request.b) if packed is None else packed.panels.checked()
    bias = None if request.bias is None else bare(request.bias)
    scheme, levels, more = settings(plan, bias)
    report = reporting(refusals_of(plan, request.b))
    rows = len(out) - plan.chosen.fringe
    product(a[:rows], b, scheme, levels, out=out[:rows], report=report, **more)
    if rows < len(out):
        _last_rows(a[rows:], request.b.detach(), more["c"], out[rows:])
    finish(out, None if more["c"] is bias else bias, request.options.epilogue)


def _last_rows(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, out: torch.Tensor
) -> None:
    """Rows that a plan leaves to torch's product."""
    if bias is None:
        torch.mm(a, b, out=out)
    else:
        torch.addmm(bias, a, b, out=out)


def refusals_of(plan: GpuPlan, b: torch.Tensor) -> Refusals:
    """Of products by a scheme around the vendor's library: each right operand has its own."""
    return of_site((id(plan), b.data_ptr()))


def reporting(refusals: Refusals) -> Callable[..., None]:
    """Lets ``refusals`` hear of a product's verdict."""

    def report(judge: Any, *parts: torch.Tensor) -> None:
        if refusals.due():
            refusals.tell(lambda heard: judge.refuses(heard.tolist()), *parts)

    return report


def settings(plan: GpuPlan, bias: torch.Tensor | None) -> tuple[Any, int, dict[str, Any]]:
    """Scheme, levels and other arguments of ``targets.gpu.product``; a real bias is its summand."""
    c = None if bias is None or bias.is_complex() else bias
    more = {"c": c, "beta": 0.0 if c is None else 1.0, "workspace": plan.chosen.workspace}
    return plan.chosen.variant.schemes, 1, more


def bare(x: torch.Tensor) -> torch.Tensor:
    """The tensor without its gradient's history."""
    return x.detach() if x.requires_grad else x


def plain(plan: GpuPlan, request: Request, out: torch.Tensor) -> None:
    """By the own kernel, classically."""
    from tiercel.targets.hopper.fused.schedule import TILE

    tile = TILE if request.options.batch_invariant else None
    bias = None if request.bias is None else bare(request.bias)
    multiply_plainly(bare(request.a), bare(request.b), bias, request.options.epilogue, out, tile)


def multiply_plainly(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, name: str | None,
    out: torch.Tensor, tile: Any = None,
) -> None:  # fmt: skip
    """out = epilogue(a · b + bias) by the own classical kernel; float32 operands in TF32."""
    from tiercel.targets.hopper.epilogues.product import gemm_epilogue
    from tiercel.targets.hopper.products.product import gemm

    in_tf32 = a.dtype is torch.float32
    if in_tf32 or (bias is None and name is None):
        gemm(a, b, out=out, tf32=in_tf32, config=tile)
        finish(out, bias, name)
        return
    operands = {} if bias is None else {"bias": bias}
    gemm_epilogue(a, b, traced(name, bias is not None), operands, config=tile, out=out)


def weight_of(plan: GpuPlan, request: Request) -> Any:
    """What multiplies by a fused kernel: a packed weight, or one that combines any operands."""
    if request.packed is not None:
        return request.packed.panels
    return fused_weights.unpacked(plan.chosen.algorithm, request.product, request.a.get_device())


def fused(plan: GpuPlan, request: Request, out: torch.Tensor) -> None:
    """By a scheme inside the own kernel."""
    bias = None if request.bias is None else bare(request.bias)
    rows = len(out) - plan.chosen.fringe
    a = bare(request.a)
    # Fast is about the error of the whole result; that of each element is then not guaranteed.
    any_scale = plan.problem.accuracy == "fast"
    weight, name = weight_of(plan, request), request.options.epilogue
    if rows == len(out) and ends_in_kernel(request):
        end_by_kernel(weight, a, out, bias, name, any_scale)
        return
    more = {} if request.packed is not None else {"b": along_k(bare(request.b).mT).mT}
    above = along_k(a[:rows])
    weight.multiply(above, out[:rows], any_scale=any_scale, tracked=request.tracked, **more)
    if rows < len(out):
        torch.mm(a[rows:], request.b.detach(), out=out[rows:])
    finish(out, bias, request.options.epilogue)


def along_k(x: torch.Tensor) -> torch.Tensor:
    """A matrix whose rows run along K, or a copy that is contiguous so, see ``must_be_turned``."""
    if not must_be_turned(x):
        return x
    from tiercel.targets.hopper.operands.turned import along_rows

    return along_rows(x)


def must_be_turned(x: torch.Tensor) -> bool:
    """Whether no kernel can combine the rows of a matrix: TF32's must be contiguous."""
    return x.dtype is torch.float32 and x.stride(1) != 1


def ends_in_kernel(request: Request) -> bool:
    """Whether a packed product is followed by something that its kernel can do."""
    followed = request.bias is not None or request.options.epilogue is not None
    return followed and request.packed is not None and request.a.dtype.itemsize == 2


def end_by_kernel(
    weight: Any, a: torch.Tensor, out: torch.Tensor, bias: torch.Tensor | None, name: str | None,
    any_scale: bool,
) -> None:  # fmt: skip
    """out = epilogue(a · weight + bias), which is rounded once."""
    operands = {} if bias is None else {"bias": bias}
    ending = traced(name, bias is not None)
    weight.multiply_and_end(a, out, ending, operands, any_scale=any_scale)
