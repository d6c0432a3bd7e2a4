"""Products with a traced epilogue like ones that a kernel has run: straight to its launch.

Looking at a call, planning it and putting an epilogue's operands in order takes several times what
the launch takes. What was seen is known by the epilogue and by how the operands lie; what that does
not hold (modes, gradients, autocast) is asked here, and operands of other kinds are for the
kernel's own tables. Where anything is not as it was, the long way is taken, which explains errors,
too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.frontends.torch.packed import PackedTensor
from tiercel.frontends.torch.routing.operands import transformed, watched
from tiercel.lower.epilogue import Epilogue
from tiercel.lower.epilogue.affine import affine
from tiercel.lower.epilogue.trace import ONLY
from tiercel.targets.hopper.launching.kernel import LaunchRefused

MOST_SEEN = 8192

#: Keys of products of plain tensors. Those of packed ones are kept in ``PackedTensor.calls``.
_seen: dict[Any, str] = {}


def key_of(epilogue: Epilogue, a: Tensor, b: Tensor) -> Any:
    """What is known of a call, but for the epilogue's operands."""
    return (
        epilogue, a.shape, a.stride(), a.dtype, a.get_device(), b.shape, b.stride(), b.dtype,
        b.get_device(),
    )  # fmt: skip


def remember(
    how: str, epilogue: Epilogue, a: Tensor, b: Tensor, packed: PackedTensor | None
) -> None:
    """A kernel has run ``epilogue(a @ b)`` with default options: "classical" or "scheme"."""
    kept = _seen if packed is None else packed.calls
    if len(kept) >= MOST_SEEN:
        kept.clear()
    kept[key_of(epilogue, a, b)] = how


def with_epilogue_again(
    a: Any, b: Any, bias: Any, epilogue: Any, operands: Mapping[str, Any], columns_of: int
) -> Any:
    """The outputs as ``tiercel.matmul`` returns them; None where this call has to be looked at.

    ``columns_of``: axis of a plain b that is N, the last of (K, N) or the first of (N, K).
    Raises ``TiercelValueError`` if a packed b has changed.
    """
    if torch.compiler.is_compiling() or type(a) is not Tensor or type(epilogue) is not Epilogue:
        return None
    packed = b if type(b) is PackedTensor else None
    if packed is not None:
        b = packed.fresh()
    elif (type(b) is not Tensor and type(b) is not Parameter) or b.dim() != 2:
        return None
    single = epilogue.single
    if bias is not None:
        if "bias" not in epilogue.parameters:
            epilogue = affine(epilogue.key, ("bias",))
        operands = {**operands, "bias": bias}
    if not a.is_cuda or _has_to_be_seen(a, b, *operands.values()):
        return None
    if columns_of == -2 and packed is None:
        b = b.t()
    how = (_seen if packed is None else packed.calls).get(key_of(epilogue, a, b))
    if how is None:
        return None
    try:
        if packed is None or how == "classical":
            results = _kernel()(a, b, epilogue, operands)
        elif packed.form.panels.refusals.resting():
            return None
        else:
            results = packed.form.panels.multiply_and_end(a, None, epilogue, operands)
    except (TiercelValueError, TiercelTypeError, LaunchRefused):  # operands that do not fit
        return None
    return results[ONLY] if single else results


def _has_to_be_seen(*operands: Any) -> bool:
    """Whether torch, or the long way, has to know of these operands."""
    grows = torch.is_grad_enabled()
    for x in operands:
        kind = type(x)
        if kind is Tensor or kind is Parameter:
            if grows and x.requires_grad:
                return True
        elif kind is not float and kind is not int:
            return True
    return watched() or transformed() or torch._C._is_tracing() or torch.is_autocast_enabled("cuda")


@cache
def _kernel() -> Callable[..., Any]:
    from tiercel.targets.hopper.epilogues.product import gemm_epilogue

    return gemm_epilogue
