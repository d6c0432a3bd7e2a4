"""The named epilogues as torch writes them: differentiable, for what a kernel does not fuse."""

from __future__ import annotations

from functools import partial

import torch
from torch.nn import functional as F

EPILOGUES = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}


def with_epilogue(c: torch.Tensor, name: str | None) -> torch.Tensor:
    """``epilogue(c)``; c itself for None."""
    return c if name is None else EPILOGUES[name](c)
