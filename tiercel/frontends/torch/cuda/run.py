"""Running a plan on CUDA tensors, whatever variant it chose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from time import perf_counter
from typing import Any

import torch

from tiercel import counters
from tiercel.errors import TiercelRuntimeError
from tiercel.frontends.torch.cuda import fused
from tiercel.frontends.torch.cuda.machine import capturing
from tiercel.frontends.torch.cuda.refusals import Refusals, of_site
from tiercel.frontends.torch.engine import Request
from tiercel.planner.gpu import GpuPlan
from tiercel.targets.hopper.launching.kernel import LaunchRefused

_ran: dict[Any, GpuPlan] = {}
MOST_RAN = 8192

#: What a call may lack for its plan: memory; multiprocessors for all of a kernel's blocks at once.
MISSING = torch.OutOfMemoryError, LaunchRefused

#: TMA reads from such addresses; torch's own allocations are at multiples of 512.
ALIGNMENT = 16


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


def _portable(plan: GpuPlan, request: Request, out: torch.Tensor) -> None:
    from tiercel.targets.gpu import product

    a, packed = _bare(request.a), request.packed
    b = _bare(request.b) if packed is None else packed.panels.checked()
    bias = None if request.bias is None else _bare(request.bias)
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
    more |= {"alpha": alpha, "beta": beta, "c": _bare(c)}
    more["report"] = reporting(refusals_of(plan, request.b))
    try:
        with _here(request.a):
            product(_bare(request.a), _bare(request.b), scheme, levels, out=out, **more)
    except torch.OutOfMemoryError:
        return False
    counters.record(plan, perf_counter() - start, plan.multiplications_saved)
    return True


def settings(plan: GpuPlan, bias: torch.Tensor | None) -> tuple[Any, int, dict[str, Any]]:
    """Scheme, levels and other arguments of ``targets.gpu.product``; a real bias is its summand."""
    c = None if bias is None or bias.is_complex() else bias
    more = {"c": c, "beta": 0.0 if c is None else 1.0, "workspace": plan.chosen.workspace}
    return plan.chosen.variant.schemes, 1, more


def _bare(x: torch.Tensor) -> torch.Tensor:
    return x.detach() if x.requires_grad else x


def _plain(plan: GpuPlan, request: Request, out: torch.Tensor) -> None:
    from tiercel.targets.hopper.fused.schedule import TILE

    tile = TILE if request.options.batch_invariant else None
    bias = None if request.bias is None else _bare(request.bias)
    multiply_plainly(_bare(request.a), _bare(request.b), bias, request.options.epilogue, out, tile)


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
    gemm_epilogue(a, b, _epilogue(name, bias is not None), operands, config=tile, out=out)


def weight_of(plan: GpuPlan, request: Request) -> Any:
    """What multiplies by a fused kernel: a packed weight, or one that combines any operands."""
    if request.packed is not None:
        return request.packed.panels
    return fused.unpacked(plan.chosen.algorithm, request.product, request.a.get_device())


def _fused(plan: GpuPlan, request: Request, out: torch.Tensor) -> None:
    bias = None if request.bias is None else _bare(request.bias)
    rows = len(out) - plan.chosen.fringe
    a = _bare(request.a)
    # Fast is about the error of the whole result; that of each element is then not guaranteed.
    any_scale = plan.problem.accuracy == "fast"
    weight, name = weight_of(plan, request), request.options.epilogue
    if rows == len(out) and ends_in_kernel(request):
        end_by_kernel(weight, a, out, bias, name, any_scale)
        return
    more = {} if request.packed is not None else {"b": along_k(_bare(request.b).mT).mT}
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
    ending = _epilogue(name, bias is not None)
    weight.multiply_and_end(a, out, ending, operands, any_scale=any_scale)


_RUN = {"portable": _portable, "plain": _plain, "fused": _fused}


def finish(out: torch.Tensor, bias: torch.Tensor | None, epilogue: str | None) -> None:
    """``out = epilogue(out + bias)`` in place."""
    if bias is not None:
        out.add_(bias)
    if epilogue is not None:
        _IN_PLACE[epilogue](out)


_IN_PLACE = {
    "relu": torch.relu_,
    "gelu": torch._C._nn.gelu_,
    "gelu_tanh": lambda out: torch._C._nn.gelu_(out, approximate="tanh"),
    "silu": torch._C._nn.silu_,
}


@cache
def _epilogue(name: str | None, biased: bool) -> Any:
    """The traced form of a named epilogue, after a bias if there is one."""
    from tiercel.lower.epilogue import epilogue, library

    function = None if name is None else getattr(library, name)
    if not biased:
        return function
    if function is None:
        return library.bias

    def with_bias(acc: Any, bias: Any) -> Any:
        return function(acc + bias)

    with_bias.__name__ = with_bias.__qualname__ = f"bias_{name}"
    return epilogue(bias="row")(with_bias)
