"""The vendor's products of planes, which is where the time goes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tiercel.errors import TiercelRuntimeError


def multiply(a: Sequence[Tensor] | Tensor, b: Sequence[Tensor] | Tensor, out: Tensor) -> None:
    """``out[r] = a[r] @ b[r]``: one strided-batched call for stacks, else one call each.

    float16 planes give float32 products (``out``), never rounded in between.
    """
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        _product(torch.bmm, torch.ops.aten.bmm, a, b, out)
        return
    for r in range(len(out)):
        _product(torch.mm, torch.ops.aten.mm, a[r], b[r], out[r])


def vendor(a: Tensor, b: Tensor, out: Tensor, alpha: float, beta: float, c: Tensor | None) -> None:
    """``out = alpha · a · b + beta · c`` for 2-D tensors, by the vendor's library alone."""
    if c is None or beta == 0:
        torch.mm(a, b, out=out)
        if alpha != 1:
            out.mul_(alpha)
        return
    torch.addmm(c, a, b, beta=beta, alpha=alpha, out=out)


def _product(function: object, overloads: object, a: Tensor, b: Tensor, out: Tensor) -> None:
    if a.dtype == out.dtype:
        function(a, b, out=out)  # type: ignore[operator]
        return
    if a.device.type == "cpu":  # Triton's interpreter: the CPU has no mixed product
        function(a.to(out.dtype), b.to(out.dtype), out=out)  # type: ignore[operator]
        return
    if not hasattr(overloads, "dtype_out"):
        raise TiercelRuntimeError(
            f"products of {a.dtype} planes are kept in {out.dtype}, which this PyTorch "
            f"({torch.__version__}) cannot ask its BLAS for; use PyTorch 2.8 or newer, or "
            "float32 operands"
        )
    overloads.dtype_out(a, b, out.dtype, out=out)  # type: ignore[attr-defined]
