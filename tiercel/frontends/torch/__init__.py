"""PyTorch tensors: large products run here, everything else stays torch's.

In the order of a call: ``linear`` and ``matmul`` take it, ``routing`` decides whose it is and knows
calls like earlier ones, ``tensors`` converts, folds and checks, ``products`` asks the device's
``engine`` (``cpu``, ``cuda``) for a plan and runs it. ``epilogues`` are what may follow,
``summand`` adds c in one launch. ``ops`` makes operators of torch.library of the same parts, for
what traces, compiles, differentiates or distributes. ``models`` puts ``linear`` into a model and
says what was done. ``packed`` is a single operand's packed form; ``hopper`` is asked for by
``target``.
"""

from typing import Any

import torch

from tiercel.frontends.torch.epilogues.again import with_epilogue_again
from tiercel.frontends.torch.epilogues.traced import has_epilogues, with_traced_epilogue
from tiercel.frontends.torch.grouped import grouped_matmul
from tiercel.frontends.torch.linear import linear as unpacked_linear
from tiercel.frontends.torch.matmul import matmul as unpacked_matmul
from tiercel.frontends.torch.models.patch import patch, unpatch
from tiercel.frontends.torch.ops.definitions import OPERATORS
from tiercel.frontends.torch.packed import PackedTensor, pack, packed_matmul
from tiercel.frontends.torch.summand import with_summand
from tiercel.options import Options

__all__ = [
    "OPERATORS",
    "PackedTensor",
    "grouped_matmul",
    "has_epilogues",
    "linear",
    "matmul",
    "pack",
    "patch",
    "unpatch",
    "with_epilogue_again",
    "with_summand",
]


def matmul(a: Any, b: Any, out: Any, bias: Any, options: Options) -> Any:
    """``epilogue(a @ b + bias)``; see ``tiercel.matmul``."""
    if options.target is not None:
        from tiercel.frontends.torch import hopper

        return hopper.matmul(a, b, out, bias, options)
    if options.epilogue is not None and options.is_traced:
        return with_traced_epilogue(
            lambda plain: matmul(a, b, None, bias, plain), a, b, bias, out, options
        )
    if type(b) is PackedTensor:
        return packed_matmul(a, b, out, bias, options)
    return unpacked_matmul(a, b, out, bias, options)


def linear(x: Any, w: Any, bias: Any, out: Any, options: Options) -> Any:
    """``epilogue(x @ w.T + bias)``; see ``tiercel.linear``. A packed w is that of ``w.T``."""
    if options.epilogue is not None and options.is_traced:
        return with_traced_epilogue(
            lambda plain: linear(x, w, bias, None, plain), x, _transposed(w), bias, out, options
        )
    if type(w) is PackedTensor:
        return packed_matmul(x, w, out, bias, options)
    return unpacked_linear(x, w, bias, out, options)


def _transposed(w: Any) -> Any:
    return w.t() if isinstance(w, torch.Tensor) and w.dim() == 2 else w
