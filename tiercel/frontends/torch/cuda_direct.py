"""The shortest way to repeat a product on a GPU: from addresses to launches."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch

from tiercel import counters
from tiercel.frontends.torch.cuda_run import ALIGNMENT, settings
from tiercel.frontends.torch.engine import Request
from tiercel.planner.gpu import GpuPlan


def direct(
    plan: GpuPlan, request: Request, given: tuple[Any, ...], result: torch.Tensor
) -> Callable[..., torch.Tensor | None] | None:
    """See ``Engine.direct``: for two matrices and a scheme around the vendor's library."""
    a, b, bias, options = request.a, request.b, request.bias, request.options
    if plan.chosen.variant.kind != "portable" or request.packed is not None or a.dim() != 2:
        return None
    if options.epilogue is not None or (bias is not None and bias.is_complex()):
        return None
    addresses = _addresses(*given)
    if addresses != _addresses(a, b, bias):  # folding has copied an operand
        return None
    from tiercel.targets.gpu import ready

    scheme, levels, more = settings(plan, bias)
    out = result.view(a.shape[0], b.shape[1])
    prepared = ready.find(a, b, scheme, levels, out=out, **more)
    if prepared is None:
        return None
    return _repeating(plan, prepared, result, _phases(addresses))


def _repeating(
    plan: GpuPlan, prepared: Any, like: torch.Tensor, phases: list[int]
) -> Callable[..., torch.Tensor | None]:
    shape, device, saved = like.shape, like.get_device(), plan.multiplications_saved

    def repeat(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor | None:
        start = perf_counter()
        if _phases(_addresses(a, b, bias)) != phases or torch.cuda.current_device() != device:
            return None
        try:
            out = a.new_empty(shape)
            prepared.run(a, b, out, bias, None)
        except torch.OutOfMemoryError:
            return None
        counters.record(plan, perf_counter() - start, saved)
        return out

    return repeat


def _addresses(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None) -> list[int]:
    return [a.data_ptr(), b.data_ptr(), 0 if bias is None else bias.data_ptr()]


def _phases(addresses: list[int]) -> list[int]:
    """Triton compiles other kernels for other alignments."""
    return [address % ALIGNMENT for address in addresses]
