"""``alpha · a @ b + beta · c`` in one launch: torch's ``addmm``, or the own kernel on a Hopper.

The kernel reads c along with what it stores; ``addmm`` copies c to the result first. Schemes around
the vendor's library add c where they write the result. Everything else goes the way of epilogues.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.frontends.torch.cuda.machine import capturing, why_not_hopper
from tiercel.frontends.torch.engine import Request
from tiercel.frontends.torch.products import gains, matmul_request
from tiercel.frontends.torch.routing.operands import followed, watched
from tiercel.frontends.torch.routing.repeated import Known, kinds
from tiercel.frontends.torch.routing.route import why_left_to_torch
from tiercel.frontends.torch.routing.shortcut import TORCHS, leave_to_torch, look_up
from tiercel.frontends.torch.tensors.out import check_out, writable_in_place
from tiercel.options import DEFAULT
from tiercel.planner.gpu import GpuPlan

#: alpha and beta.
Factors = tuple[float, float]

_REAL = (type(None), float, int)
_PLAIN = (Tensor, Parameter)


def with_summand(a: Any, b: Any, c: Any, alpha: Any, beta: Any, out: Any) -> Tensor | None:
    """``alpha · a @ b + beta · c`` of matrices, as ``tiercel.matmul`` with no other options.

    None where it has to be looked at closer.
    """
    if torch.compiler.is_compiling() or type(alpha) not in _REAL or type(beta) not in _REAL:
        return None
    if type(a) is not Tensor or type(b) not in _PLAIN or type(c) not in _PLAIN:
        return None
    if not _fit(a, b, c) or torch.is_autocast_enabled(a.device.type) or torch._C._is_tracing():
        return None
    if watched() or followed(a, b, c):
        return None
    if out is not None:
        check_out(out, a, b, None)
        if not writable_in_place(out, a, b) or (c is not out and not writable_in_place(out, c)):
            return None
    factors = 1.0 if alpha is None else alpha, 1.0 if beta is None else beta
    if a.is_cuda and a.dtype.itemsize == 2:
        result = _by_kernel(a, b, c, factors, out)
        if result is not None:
            return result
    known = look_up(a, b, None, -1, DEFAULT)
    if known is TORCHS or (known is None and _is_torchs(a, b)):
        return torch.addmm(c, a, b, alpha=factors[0], beta=factors[1], out=out)
    return None if known is None else _by_plan(known, a, b, c, factors, out)


def _is_torchs(a: Any, b: Any) -> bool:
    """Whether no plan of ours gains on the product alone; it is then known to be torch's."""
    if why_left_to_torch(a, b, None, None, DEFAULT, columns_of=-1):
        return False
    request = matmul_request(a, b, None, DEFAULT)
    if request is None or gains(request):
        return False
    leave_to_torch(a, b, None, -1, DEFAULT)
    return True


def _by_plan(
    known: Known, a: Tensor, b: Tensor, c: Tensor, factors: Factors, out: Tensor | None
) -> Tensor | None:
    """By the plan that the product alone has had; None where it has changed or cannot add."""
    plan = known.plan
    if not isinstance(plan, GpuPlan) or plan.chosen.variant.kind != "portable":
        return None
    if known.algorithm is not None or known.kinds != kinds(a, b, None):
        return None
    if known.engine.why_not(a.dtype):
        return None
    from tiercel.frontends.torch.cuda.run import run_with_summand

    result = a.new_empty(known.shape) if out is None else out
    request = Request(a, b, None, DEFAULT)
    if not run_with_summand(plan, request, c, factors, result):
        return None
    if out is not None:
        torch.autograd.graph.increment_version(out)
    return result


def _fit(a: Tensor, b: Tensor, c: Tensor) -> bool:
    """Whether a (M, K), b (K, N) and c, which broadcasts to (M, N), are of one kind."""
    dtype, device = a.dtype, a.get_device()
    if not (
        a.dim() == b.dim() == 2
        and b.dtype is dtype
        and c.dtype is dtype
        and (dtype.is_floating_point or dtype.is_complex)
        and b.get_device() == c.get_device() == device
        and (device >= 0 or dtype.itemsize > 2)  # on a CPU 16-bit results are rounded once only
    ):
        return False
    (M, K), N = a.shape, b.shape[1]
    if b.shape[0] != K:
        return False
    if c.shape == (M, N):
        return True
    return c.dim() <= 2 and all(x in (1, y) for x, y in zip(c.shape[::-1], (N, M), strict=False))


def _by_kernel(
    a: Tensor, b: Tensor, c: Tensor, factors: Factors, out: Tensor | None
) -> Tensor | None:
    """By the own kernel; None where it is not there, not compiled, or cannot read the operands."""
    alpha, beta = factors
    simple = c.shape == (a.shape[0], b.shape[1]) and beta != 0 and a.numel() and b.numel()
    if not simple or why_not_hopper(a.get_device()) or capturing():
        return None
    from tiercel.targets.hopper.products.product import gemm

    try:
        result = gemm(a, b, out=out, alpha=alpha, beta=beta, c=c)
    except (TiercelTypeError, TiercelValueError):  # what TMA cannot read
        return None
    if out is not None:
        torch.autograd.graph.increment_version(out)
    return result
