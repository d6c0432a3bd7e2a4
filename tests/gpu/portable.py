"""Operands and references of the portable target's GPU tests."""

from __future__ import annotations

import torch
from torch import Tensor

REAL = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]
DTYPES = REAL + COMPLEX


def integers(*shape: int, dtype: torch.dtype, seed: int = 0, top: int = 3) -> Tensor:
    """Small whole numbers of both signs: products of them are exact in every dtype."""
    g = torch.Generator(device="cuda").manual_seed(seed)
    real = torch.randint(-top, top + 1, shape, generator=g, device="cuda").double()
    if dtype.is_complex:
        imag = torch.randint(-top, top + 1, shape, generator=g, device="cuda").double()
        return torch.complex(real, imag).to(dtype)
    return real.to(dtype)


def normal(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    """Independent standard normal numbers."""
    g = torch.Generator(device="cuda").manual_seed(seed)
    return torch.randn(shape, generator=g, device="cuda", dtype=torch.promote_types(
        dtype, torch.float32)).to(dtype)  # fmt: skip


def wide(x: Tensor) -> Tensor:
    """The same values in double precision."""
    return x.to(torch.complex128 if x.is_complex() else torch.float64)


def error(c: Tensor, reference: Tensor) -> float:
    """‖c − reference‖ / ‖reference‖."""
    return ((wide(c) - reference).norm() / reference.norm()).item()


def laid_out(x: Tensor, layout: str) -> Tensor:
    """The same values in another layout, surrounded by NaN where memory is left over."""
    if layout == "row":
        return x.contiguous()
    if layout == "column":
        return x.mT.contiguous().mT
    *batch, rows, cols = x.shape
    tall, broad = (2, 3) if layout == "strided" else (1, 1)
    around = torch.full(
        (*batch, rows * tall + 3, cols * broad + 5), float("nan"), dtype=x.dtype, device=x.device
    )
    view = around[..., 1 : rows * tall + 1 : tall, 3 : cols * broad + 3 : broad]
    view.copy_(x)
    return view
