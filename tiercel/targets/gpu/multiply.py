"""The vendor's products of planes, which is where the time goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tiercel.errors import TiercelRuntimeError
from tiercel.targets.gpu.launch import Memory


@dataclass(frozen=True)
class Multiply:
    """``out[r] = a[r] @ b[r]`` of stand-ins: one strided-batched call for stacks, else one each.

    float16 planes give float32 products (``out``), never rounded in between.
    """

    a: Tensor | Sequence[Tensor]
    b: Tensor | Sequence[Tensor]
    out: Tensor

    def __call__(self, memory: Memory, stream: int) -> None:
        out, view = memory.view(self.out), memory.view
        if isinstance(self.a, Tensor) and isinstance(self.b, Tensor):
            _product(torch.bmm, torch.ops.aten.bmm, view(self.a), view(self.b), out)
            return
        for a, b, result in zip(self.a, self.b, out, strict=True):
            _product(torch.mm, torch.ops.aten.mm, view(a), view(b), result)


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
