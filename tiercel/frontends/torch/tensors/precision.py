"""How many bits of float32 operands torch may multiply."""

from __future__ import annotations

import torch


def tf32_allowed() -> bool:
    """Whether torch may multiply float32 in TF32."""
    matmul = torch.backends.cuda.matmul
    precision = getattr(matmul, "fp32_precision", None)  # PyTorch 2.9 and newer
    if precision in (None, "none"):
        return torch.get_float32_matmul_precision() != "highest"
    return precision != "ieee"


def in_tf32(x: torch.Tensor) -> bool:
    """Whether products of a tensor may be in TF32, on which their plans depend."""
    return x.dtype is torch.float32 and x.is_cuda and tf32_allowed()
