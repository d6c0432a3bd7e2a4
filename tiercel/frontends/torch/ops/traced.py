"""What ``torch.compile`` and ``torch.export`` see of a product while they trace Python.

Every product that could gain becomes an operator. Nothing is decided here, so that no size is
guarded and a dynamic M never compiles again; ``lowered.py`` and the operator itself decide.
"""

from __future__ import annotations

from typing import Any

import torch

from tiercel.frontends.torch.engine import ENGINES
from tiercel.frontends.torch.ops import autograd
from tiercel.frontends.torch.ops.option_text import encode
from tiercel.frontends.torch.routing.operands import are_distributed, are_plain
from tiercel.frontends.torch.routing.torchs_own import refuse, torchs_linear, torchs_matmul
from tiercel.frontends.torch.tensors.fold import folded
from tiercel.options import Options


def linear(x: Any, w: Any, bias: Any, options: Options) -> torch.Tensor:
    """``epilogue(F.linear(x, w, bias))`` as a node of a graph."""
    if _takes(x, w, bias, options) and x.dim() >= 2 and w.dim() == 2:
        return autograd.linear(x, w, bias, encode(options))
    refuse(options, "these operands under torch.compile", x)
    return torchs_linear(x, w, bias, options)


def matmul(a: Any, b: Any, bias: Any, options: Options) -> torch.Tensor:
    """``epilogue(torch.matmul(a, b) + bias)`` as a node of a graph."""
    if _takes(a, b, bias, options) and a.dim() >= 2 and b.dim() >= 2:
        if b.dim() == 2:
            return autograd.linear(a, b.mT, bias, encode(options))
        pair = folded(a, b) if bias is None else None
        if pair is not None:
            a2, b2, unfold = pair
            return unfold(autograd.matmul(a2, b2, None, encode(options)))
    refuse(options, "these operands under torch.compile", a)
    return torchs_matmul(a, b, bias, options)


def _takes(a: Any, b: Any, bias: Any, options: Options) -> bool:
    """Whether an operator may stand for the product."""
    if not all(_traceable(x) for x in (a, b, bias)) and not are_distributed(a, b, bias):
        return False
    return options.scheme != "vendor" and a.device.type in ENGINES


def _traceable(x: Any) -> bool:
    # torch.export shows Python the stand-ins of the tensors, torch.compile their types.
    return are_plain(x) or type(x).__module__.startswith("torch._subclasses.")
