"""The shortest way to repeat a product on a GPU: from addresses to launches."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any
from weakref import ref

import torch

from tiercel import counters
from tiercel.frontends.torch.cuda_run import (
    ALIGNMENT,
    end_by_kernel,
    multiply_plainly,
    refusals_of,
    reporting,
    settings,
    weight_of,
)
from tiercel.frontends.torch.engine import Request
from tiercel.frontends.torch.frozen import packed_form
from tiercel.planner.gpu import GpuPlan

#: From a, b and bias, as the caller gives them, to a new result; None where it cannot be used now.
Repeat = Callable[..., torch.Tensor | None]

#: Computes the result of a, b and bias into the last argument, or says that it cannot.
Launch = Callable[..., bool]


def direct(
    plan: GpuPlan, request: Request, given: tuple[Any, ...], result: torch.Tensor
) -> Repeat | None:
    """See ``Engine.direct``: for two matrices, whose bias alone is added by torch at most."""
    a, b, bias = request.a, request.b, request.bias
    if request.options.epilogue is not None or a.dim() != 2:
        return None
    addresses = _addresses(*given)
    if addresses != _addresses(a, b, bias):  # folding has copied an operand
        return None
    kind = plan.chosen.variant.kind
    if kind == "portable" and request.packed is None:
        launch = _around_the_vendor(plan, request, result)
    elif kind == "fused":
        launch = _inside_the_kernel(plan, request, given, result)
    elif kind == "plain":
        launch = _by_the_plain_kernel(request)
    else:
        return None
    return None if launch is None else _repeating(plan, launch, result, _phases(addresses))


def _around_the_vendor(plan: GpuPlan, request: Request, result: torch.Tensor) -> Launch | None:
    a, b, bias = request.a, request.b, request.bias
    if bias is not None and bias.is_complex():
        return None
    from tiercel.targets.gpu import ready

    scheme, levels, more = settings(plan, bias)
    out = result.view(a.shape[0], b.shape[1])
    prepared = ready.find(a, b, scheme, levels, out=out, **more)
    if prepared is None:
        return None

    def launch(a: Any, b: Any, bias: Any, out: torch.Tensor) -> bool:
        refusals = refusals_of(plan, b)
        if refusals.resting():
            return False
        prepared.run(a, b, out, bias, None, reporting(refusals))
        return True

    return launch


def _inside_the_kernel(
    plan: GpuPlan, request: Request, given: tuple[Any, ...], result: torch.Tensor
) -> Launch:
    options = request.options
    any_scale = plan.problem.accuracy == "fast"
    more = {"any_scale": any_scale, "tracked": request.tracked}
    (M, _), N = request.a.shape, request.b.shape[1]
    rows = M - plan.chosen.fringe  # that divide; the others are torch's
    # How the operands lie, whatever views of them the caller gives: xᵀ of a weight's gradient, too.
    of_a = request.a.shape, request.a.stride()
    of_b = request.b.shape, request.b.stride()
    # Held weakly: what is known of a product does not keep a weight packed.
    known = None if request.packed is None else ref(request.packed)
    unpacked = weight_of(plan, request) if known is None else None

    def launch(a: torch.Tensor, b: torch.Tensor, bias: Any, out: torch.Tensor) -> bool:
        weight, both = unpacked, {}
        if known is None:
            both["b"] = b.as_strided(*of_b)
        else:
            form = packed_form(b, options)
            weight = None if form is None or form is not known() else form.panels
        if weight is None or weight.refusals.resting():
            return False
        left, found = a.as_strided(*of_a), out.view(M, N)
        if bias is not None and rows == M and not both:
            end_by_kernel(weight, left, found, bias, None, any_scale)
            return True
        weight.multiply(left[:rows], found[:rows], **more, **both)
        if rows < M:
            torch.mm(left[rows:], b.as_strided(*of_b), out=found[rows:])
        if bias is not None:
            out.add_(bias)
        return True

    return launch


def _by_the_plain_kernel(request: Request) -> Launch:
    (M, _), N = request.a.shape, request.b.shape[1]
    of_a = request.a.shape, request.a.stride()
    of_b = request.b.shape, request.b.stride()

    def launch(a: torch.Tensor, b: torch.Tensor, bias: Any, out: torch.Tensor) -> bool:
        multiply_plainly(a.as_strided(*of_a), b.as_strided(*of_b), bias, None, out.view(M, N))
        return True

    return launch


def _repeating(plan: GpuPlan, launch: Launch, like: torch.Tensor, phases: list[int]) -> Repeat:
    shape, device, saved = like.shape, like.get_device(), plan.multiplications_saved

    def repeat(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor | None:
        start = perf_counter()
        if _phases(_addresses(a, b, bias)) != phases or torch.cuda.current_device() != device:
            return None
        try:
            out = a.new_empty(shape)
            done = launch(a, b, bias, out)
        except torch.OutOfMemoryError:
            return None
        if not done:
            return None
        counters.record(plan, perf_counter() - start, saved)
        return out

    return repeat


def _addresses(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None) -> list[int]:
    return [a.data_ptr(), b.data_ptr(), 0 if bias is None else bias.data_ptr()]


def _phases(addresses: list[int]) -> list[int]:
    """Triton compiles other kernels for other alignments."""
    return [address % ALIGNMENT for address in addresses]
