"""The shortest way to repeat a product on a GPU: from addresses to launches."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from tiercel import counters
from tiercel.frontends.torch.cuda.ending import finish
from tiercel.frontends.torch.cuda.machine import raw_stream
from tiercel.frontends.torch.cuda.run import ALIGNMENT, MISSING
from tiercel.frontends.torch.cuda.variants import (
    end_by_kernel,
    ends_in_kernel,
    multiply_plainly,
    must_be_turned,
    refusals_of,
    reporting,
    settings,
    weight_of,
)
from tiercel.frontends.torch.engine import Request
from tiercel.planner.gpu import GpuPlan

if TYPE_CHECKING:
    from tiercel.targets.hopper.launching.again import Again

#: From a, b and bias, as the caller gives them, to a new result, or to one that is given,
#: contiguous and of its shape; None where it cannot be used now.
Repeat = Callable[..., torch.Tensor | None]

#: Computes the result of a, b and bias into the last argument, or says that it cannot.
Launch = Callable[..., bool]


def direct(
    plan: GpuPlan, request: Request, given: tuple[Any, ...], result: torch.Tensor
) -> Repeat | None:
    """See ``Engine.direct``: for two matrices."""
    a, b, bias = request.a, request.b, request.bias
    name = request.options.epilogue
    if a.dim() != 2:
        return None
    addresses = _addresses(*given)
    if addresses != _addresses(a, b, bias):  # folding has copied an operand
        return None
    kind = plan.chosen.variant.kind
    if kind == "portable" and request.packed is None and name is None:
        launch = _around_the_vendor(plan, request, result)
    elif kind == "fused":
        launch = _inside_the_kernel(plan, request, given, result)
    elif kind == "plain":
        launch = _by_the_plain_kernel(request, given, result)
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
) -> Launch | None:
    if must_be_turned(request.a) or must_be_turned(request.b.mT):
        return None  # it copies an operand each time
    name, any_scale = request.options.epilogue, plan.problem.accuracy == "fast"
    (M, _), N, tracked = request.a.shape, request.b.shape[1], request.tracked
    rows = M - plan.chosen.fringe  # that divide; the others are torch's
    left_of, right_of = _view(given[0], request.a), _view(given[1], request.b)
    packed, weight = request.packed is not None, weight_of(plan, request)
    if rows == M and ends_in_kernel(request):

        def launch(a: torch.Tensor, b: torch.Tensor, bias: Any, out: torch.Tensor) -> bool:
            if weight.refusals.resting():
                return False
            end_by_kernel(weight, left_of(a), out.view(M, N), bias, name, any_scale)
            return True

        return launch
    operands = request.a[:rows], result.view(M, N)[:rows]
    call = weight.call(operands if packed else (*operands, request.b), any_scale=any_scale)
    deterministic = torch.are_deterministic_algorithms_enabled()  # other calls then

    def launch(a: torch.Tensor, b: torch.Tensor, bias: Any, out: torch.Tensor) -> bool:
        changed = torch.are_deterministic_algorithms_enabled() != deterministic
        if changed or weight.refusals.resting():
            return False
        call.run((a, out) if packed else (a, out, b), tracked)
        if rows < M:
            torch.mm(left_of(a)[rows:], right_of(b), out=out.view(M, N)[rows:])
        finish(out, bias, name)
        return True

    return launch


def _by_the_plain_kernel(request: Request, given: tuple[Any, ...], result: torch.Tensor) -> Launch:
    (M, _), N = request.a.shape, request.b.shape[1]
    left_of, right_of = _view(given[0], request.a), _view(given[1], request.b)
    name, device = request.options.epilogue, result.get_device()
    again = _again_of(request.a, request.b, result.view(M, N), request.bias, name)

    def launch(a: torch.Tensor, b: torch.Tensor, bias: Any, out: torch.Tensor) -> bool:
        nonlocal again
        if again is not None:
            addresses = [a.data_ptr(), b.data_ptr(), out.data_ptr()]
            if again.run(addresses, raw_stream(device)):
                return True
        left, right, matrix = left_of(a), right_of(b), out.view(M, N)
        multiply_plainly(left, right, bias, name, matrix)
        if again is not None:
            again = _again_of(left, right, matrix, bias, name)
        return True

    return launch


def _again_of(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, bias: Any, name: str | None
) -> Again | None:
    if bias is not None or name is not None:
        return None
    from tiercel.targets.hopper.launching.again import again

    return again(a, b, out)


def _view(given: torch.Tensor, wanted: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """How the kernel sees an operand, whatever view of it the caller gives: xᵀ of a weight's
    gradient, too.
    """
    lies = wanted.shape, wanted.stride()
    if lies == (given.shape, given.stride()):
        return lambda x: x
    return lambda x: x.as_strided(*lies)  # 1.5 µs


def _repeating(plan: GpuPlan, launch: Launch, like: torch.Tensor, phases: list[int]) -> Repeat:
    shape, device, saved = like.shape, like.get_device(), plan.multiplications_saved
    aligned = not any(phases)

    def repeat(
        a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, out: torch.Tensor | None = None
    ) -> torch.Tensor | None:
        start = perf_counter()
        if out is not None and out.data_ptr() % ALIGNMENT:
            return None
        if aligned:  # in a quarter of the time
            together = a.data_ptr() | b.data_ptr() | (0 if bias is None else bias.data_ptr())
            if together % ALIGNMENT:
                return None
        elif _phases(_addresses(a, b, bias)) != phases:
            return None
        if torch.cuda.current_device() != device:
            return None
        try:
            out = a.new_empty(shape) if out is None else out
            done = launch(a, b, bias, out)
        except MISSING:
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
