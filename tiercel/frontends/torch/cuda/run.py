"""Running a plan on CUDA tensors, whatever variant it chose."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from time import perf_counter
from typing import Any

import torch

from tiercel import counters
from tiercel.errors import TiercelRuntimeError
from tiercel.frontends.torch.cuda import variants
from tiercel.frontends.torch.cuda.ending import finish
from tiercel.frontends.torch.cuda.machine import capturing
from tiercel.frontends.torch.cuda.variants import bare, refusals_of, reporting, settings, weight_of
from tiercel.frontends.torch.engine import Request
from tiercel.planner.gpu import GpuPlan
from tiercel.targets.gpu.failure import KernelFailed, why_none
from tiercel.targets.hopper.launching.kernel import LaunchRefused

_ran: dict[Any, GpuPlan] = {}
MOST_RAN = 8192

#: What a call may lack for its plan: memory; multiprocessors for all of a kernel's blocks at once;
#: kernels of Triton's.
MISSING = torch.OutOfMemoryError, LaunchRefused, KernelFailed

#: TMA reads from such addresses; torch's own allocations are at multiples of 512.
ALIGNMENT = 16

_RUN = {"portable": variants.portable, "plain": variants.plain, "fused": variants.fused}


def run(plan: GpuPlan, request: Request, out: torch.Tensor) -> None:
    """``epilogue(a @ b + bias)`` into ``out``, as planned unless ``why_not_now`` speaks against it.

    Raises ``TiercelRuntimeError`` where the caller named a scheme and it does.
    """
    start = perf_counter()
    with _here(request.a):
        reason = why_not_now(plan, request)
        if reason and _insisted(request):
            raise TiercelRuntimeError(
                f"scheme={plan.chosen.algorithm!r} cannot run: {reason}; leave scheme and "
                "batch_invariant out to let such calls run torch's product"
            )
        done = not reason and _ran_as_planned(plan, request, out)
        if not done:
            _vendor(plan, request, out)
    # The host's time: the device is not waited for.
    seconds = perf_counter() - start
    if done:
        counters.record(plan, seconds, plan.multiplications_saved)
    else:
        counters.record(plan.choosing("vendor"), seconds)


def _ran_as_planned(plan: GpuPlan, request: Request, out: torch.Tensor) -> bool:
    """False where memory or multiprocessors did not suffice, and another way is allowed."""
    try:
        _RUN[plan.chosen.variant.kind](plan, request, out)
    except MISSING:
        if _insisted(request):
            raise
        return False
    if len(_ran) >= MOST_RAN:
        _ran.clear()
    _ran[_key(plan, request)] = plan
    return True


def _key(plan: GpuPlan, request: Request) -> Any:
    """What compiled kernels depend on: Triton makes other ones for other alignments."""
    a, b = request.a, request.b
    return id(plan), a.get_device(), (a.data_ptr() | b.data_ptr()) % ALIGNMENT == 0


def _insisted(request: Request) -> bool:
    return request.options.scheme is not None or request.options.batch_invariant


def why_not_now(plan: GpuPlan, request: Request) -> str:
    """What speaks against this call beside its sizes and strides, which the plan knows."""
    a, b, packed, kind = request.a, request.b, request.packed, plan.chosen.variant.kind
    # Compiling takes seconds, and may synchronise.
    if capturing() and _key(plan, request) not in _ran:
        return "it has not run before the CUDA graph that is being captured"
    if kind != "plain" and why_none():
        return why_none()
    if packed is not None and packed.kind != kind:
        return f"b is packed for another kernel ({packed.kind})"
    if kind != "portable" and (a.dim() != 2 or (a.data_ptr() | b.data_ptr()) % ALIGNMENT):
        return f"its kernel takes matrices at addresses that are multiples of {ALIGNMENT}"
    if kind == "plain" or _insisted(request):
        return ""
    judged = refusals_of(plan, b) if kind == "portable" else weight_of(plan, request).refusals
    return "" if judged.allows() else "the data of an earlier call were refused"


def _here(a: torch.Tensor) -> Any:
    """The tensors' device, and products in the dtypes that they are written in."""
    device = a.get_device()
    if torch.is_autocast_enabled("cuda"):
        return _without_autocast(device)
    return nullcontext() if torch.cuda.current_device() == device else torch.cuda.device(device)


@contextmanager
def _without_autocast(device: int) -> Iterator[None]:
    with torch.cuda.device(device), torch.autocast("cuda", enabled=False):
        yield


def _vendor(plan: GpuPlan, request: Request, out: torch.Tensor) -> None:
    """torch's own product, into ``out``."""
    a, b, bias = request.a.detach(), request.b.detach(), request.bias
    if bias is not None and a.dim() == 2:
        torch.addmm(bias.detach(), a, b, out=out)
        bias = None
    else:
        torch.matmul(a, b, out=out)
    finish(out, None if bias is None else bias.detach(), request.options.epilogue)


def run_with_summand(
    plan: GpuPlan, request: Request, c: torch.Tensor, factors: tuple[float, float],
    out: torch.Tensor,
) -> bool:  # fmt: skip
    """``alpha · a @ b + beta · c`` into ``out``, by a scheme around the vendor's library.

    ``factors``: alpha and beta. False where it does not run now.
    """
    from tiercel.targets.gpu import product

    start, (alpha, beta) = perf_counter(), factors
    if why_not_now(plan, request):
        return False
    scheme, levels, more = settings(plan, None)
    more |= {"alpha": alpha, "beta": beta, "c": bare(c)}
    more["report"] = reporting(refusals_of(plan, request.b))
    try:
        with _here(request.a):
            product(bare(request.a), bare(request.b), scheme, levels, out=out, **more)
    except MISSING:
        return False
    counters.record(plan, perf_counter() - start, plan.multiplications_saved)
    return True
