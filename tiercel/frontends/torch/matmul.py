"""``matmul`` and ``linear`` of tensors: ours where a plan gains, torch's own everywhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from tiercel.frontends.torch.autocast import converted, product_dtype
from tiercel.frontends.torch.autograd import differentiable
from tiercel.frontends.torch.engine import Request, run
from tiercel.frontends.torch.fold import folded
from tiercel.frontends.torch.operands import are_plain, why_torch
from tiercel.frontends.torch.out import check_out, writable_in_place
from tiercel.frontends.torch.torchs_own import refuse_scheme, torchs_linear, torchs_matmul
from tiercel.options import Options

if TYPE_CHECKING:
    from tiercel.frontends.torch.frozen import FrozenWeight


def matmul(a: Any, b: Any, out: Any, bias: Any, options: Options) -> torch.Tensor:
    """``epilogue(a @ b + bias)`` with the semantics of ``torch.matmul``; see ``tiercel.matmul``."""
    if torch.compiler.is_compiling():
        return _into(out, torchs_matmul(a, b, bias, options))
    if out is not None:
        check_out(out, a, b, bias)
    reason = "tensor subclasses and other types"
    if are_plain(a, b, bias, out):
        N = b.shape[-1] if b.dim() > 1 else 0
        reason = _why_torch(a, b, bias, N, options)
        if not reason:
            result = _planned(a, b, bias, out, options)
            if result is not None:
                return result
    refuse_scheme(options, reason or "shapes or dtypes that do not fit")
    if out is not None and bias is None and options.epilogue is None and _apart(out, a, b):
        return torch.matmul(a, b, out=out)
    return _into(out, torchs_matmul(a, b, bias, options))


def linear(
    x: Any, w: Any, bias: Any, out: Any, options: Options, frozen: FrozenWeight | None = None
) -> torch.Tensor:
    """``epilogue(F.linear(x, w, bias))``; see ``tiercel.linear``. ``frozen`` may have w packed."""
    if torch.compiler.is_compiling():
        return _into(out, torchs_linear(x, w, bias, options))
    if out is not None:
        check_out(out, x, w.mT if w.dim() > 1 else w, bias)
    reason = "tensor subclasses and other types"
    if are_plain(x, w, bias, out):
        reason = _why_torch(x, w, bias, w.shape[0] if w.dim() == 2 else 0, options)
        if not reason:
            packed = None if frozen is None else frozen.packed(w)
            result = _planned(x, w.t(), bias, out, options, packed)
            if result is not None:
                return result
    refuse_scheme(options, reason or "shapes or dtypes that do not fit")
    return _into(out, torchs_linear(x, w, bias, options))


def _why_torch(a: Any, b: Any, bias: Any, N: int, options: Options) -> str:
    if options.scheme == "vendor":
        return "the vendor's product"
    dtype = product_dtype(a, b)
    if dtype is None:
        return f"operands of dtypes {a.dtype} and {b.dtype}"
    return why_torch(a, b, bias, N, dtype, large=options.scheme is not None)


def _planned(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    out: torch.Tensor | None,
    options: Options,
    packed: Any = None,
) -> torch.Tensor | None:
    """The product by a plan of ours; None where torch is expected to be faster, or to refuse."""
    pair = folded(converted(a), converted(b))
    if pair is None:
        return None
    a2, b2, unfold = pair
    vector = None if bias is None else converted(bias)
    if vector is not None and (vector.shape != b.shape[-1:] or vector.dtype != a2.dtype):
        return None
    if vector is not None and b2.shape[-1] != b.shape[-1]:
        return None  # b's batch axes became columns, for which there is no bias
    if packed is not None and packed.dtype.name != str(b2.dtype).removeprefix("torch."):
        packed = None  # autocast converted the weight
    request = Request(a2, b2, vector, options, packed)
    plan = request.plan()
    if plan is None:
        return None
    needs_grad = any(x is not None and x.requires_grad for x in (a2, b2, vector))
    if needs_grad and torch.is_grad_enabled():
        return unfold(differentiable(plan, request))
    if out is not None and out.dim() == a2.dim() == 2 and writable_in_place(out, a, b, bias):
        return run(plan, request, out)
    return _into(out, unfold(run(plan, request)))


def _apart(out: torch.Tensor, *read: torch.Tensor) -> bool:
    return are_plain(out, *read) and writable_in_place(out, *read)


def _into(out: torch.Tensor | None, result: torch.Tensor) -> torch.Tensor:
    return result if out is None else out.copy_(result)
