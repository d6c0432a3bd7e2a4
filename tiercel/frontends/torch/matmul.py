"""``matmul`` and ``linear`` of tensors: ours where a plan gains, torch's own everywhere else."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from tiercel.frontends.torch.autocast import converted, product_dtype
from tiercel.frontends.torch.autograd import differentiable
from tiercel.frontends.torch.engine import Request, run
from tiercel.frontends.torch.epilogue import with_epilogue
from tiercel.frontends.torch.fold import folded
from tiercel.frontends.torch.operands import are_plain, why_torch
from tiercel.frontends.torch.out import check_out, writable_in_place
from tiercel.frontends.torch.torchs_own import refuse_scheme, torchs_linear, torchs_matmul
from tiercel.options import Options

if TYPE_CHECKING:
    from tiercel.frontends.torch.frozen import FrozenWeight


def matmul(a: Any, b: Any, out: Any, bias: Any, options: Options) -> torch.Tensor:
    """``epilogue(a @ b + bias)`` with the semantics of ``torch.matmul``; see ``tiercel.matmul``."""
    if out is not None:
        check_out(out, a, b, bias)
    if torch.compiler.is_compiling():
        return _into(out, torchs_matmul(a, b, bias, options))
    reason = _why_torch(a, b, bias, out, options, columns_of=-1)
    if not reason:
        result = _planned(a, b, bias, out, options)
        if result is not None:
            return result
    refuse_scheme(options, reason)
    bare = bias is None and options.epilogue is None
    if out is not None and bare and are_plain(out, a, b) and writable_in_place(out, a, b):
        return torch.matmul(a, b, out=out)
    return _into(out, torchs_matmul(a, b, bias, options))


def linear(
    x: Any, w: Any, bias: Any, out: Any, options: Options, frozen: FrozenWeight | None = None
) -> torch.Tensor:
    """``epilogue(F.linear(x, w, bias))``; see ``tiercel.linear``. ``frozen`` may have w packed."""
    if out is not None:
        check_out(out, x, w.t() if isinstance(w, torch.Tensor) else w, bias)
    if torch.compiler.is_compiling():
        return _into(out, torchs_linear(x, w, bias, options))
    reason = _why_torch(x, w, bias, out, options, columns_of=0)
    if not reason and w.dim() == 2:
        packed = None if frozen is None else frozen.packed(w)
        result = _planned(x, w.t(), bias, out, options, packed)
        if result is not None:
            return result
    refuse_scheme(options, reason)
    return _into(out, torchs_linear(x, w, bias, options))


def _why_torch(a: Any, b: Any, bias: Any, out: Any, options: Options, columns_of: int) -> str:
    """The reason for torch's own product, "" if a plan should be made; ``columns_of``: N's axis."""
    if not are_plain(a, b, bias, out):
        return "tensor subclasses and other types"
    if options.scheme == "vendor":
        return "the vendor's product"
    if b.dim() < 2:
        return "a vector operand"
    dtype = product_dtype(a, b)
    if dtype is None or not (out is None or out.dtype is dtype):
        return f"operands of dtypes {a.dtype} and {b.dtype}"
    return why_torch(a, b, bias, b.shape[columns_of], dtype, large=options.scheme is not None)


def _planned(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    out: torch.Tensor | None,
    options: Options,
    packed: Any = None,
) -> torch.Tensor | None:
    """The product by a plan of ours; None where torch is expected to be faster, or to refuse."""
    stored, a, b = b.dtype, converted(a), converted(b)
    bias = None if bias is None else converted(bias)
    pair = folded(a, b)
    if pair is None:
        return None
    a2, b2, unfold = pair
    if bias is not None and (bias.shape != b2.shape[-1:] or bias.dtype is not a.dtype):
        return None
    if b.dtype is not stored:
        packed = None  # autocast has converted the weight
    needs_grad = torch.is_grad_enabled() and any(
        x is not None and x.requires_grad for x in (a, b, bias)
    )
    fused = replace(options, epilogue=None) if needs_grad and options.epilogue else options
    request = Request(a2, b2, bias, fused, packed)
    plan = request.plan()
    if plan is None:
        return None
    if needs_grad:
        return with_epilogue(unfold(differentiable(plan, request)), options.epilogue)
    if out is not None and out.dim() == a2.dim() == 2 and writable_in_place(out, a, b, bias):
        return run(plan, request, out)
    return _into(out, unfold(run(plan, request)))


def _into(out: torch.Tensor | None, result: torch.Tensor) -> torch.Tensor:
    return result if out is None else out.copy_(result)
