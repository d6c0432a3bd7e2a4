"""Products known to be torch's: too small for any plan, or left to it by a plan before.

Finding out takes 30 us, and a decode step has hundreds of such calls; knowing takes 2 us. A key
holds all that a plan depends on but the number of threads, which does not change what torch is
better at. Under autocast, where operands are converted first, nothing is known.
"""

from __future__ import annotations

from typing import Any

import torch

from tiercel.frontends.torch.engine import engine_for
from tiercel.frontends.torch.route import insisted
from tiercel.options import Options

MOST_KEYS = 4096

#: Key of a product -> its options, which a key names by address and must not outlive.
_torchs: dict[Any, Options] = {}


def _key(a: torch.Tensor, b: torch.Tensor, bias: Any, options: Options) -> Any:
    return (
        id(options), bias is None, a.shape, a.stride(), b.shape, b.stride(),
        a.dtype, b.dtype, a.device,
    )  # fmt: skip


def is_torchs(a: Any, b: Any, bias: Any, columns_of: int, options: Options) -> bool:
    """Whether the product of a and b, whose axis ``columns_of`` is N, is known to be torch's.

    Answers False for all that is not a pair of exact tensors or parameters.
    """
    if (
        torch._C._is_tracing()
        or type(a) is not torch.Tensor
        or (type(b) is not torch.Tensor and type(b) is not torch.nn.Parameter)
    ):
        return False
    device = "cpu" if a.is_cpu else a.device.type
    engine = engine_for(device)
    if engine is None:
        return not insisted(options)
    if torch.is_autocast_enabled(device):
        return False
    try:
        if a.numel() * b.shape[columns_of] < engine.LEAST_WORK.get(a.dtype, 0):
            return not insisted(options)
        return _key(a, b, bias, options) in _torchs
    except (IndexError, RuntimeError):  # a scalar, a layout without strides
        return False


def leave_to_torch(a: torch.Tensor, b: torch.Tensor, bias: Any, options: Options) -> None:
    """Remember that a plan left the product of a and b to torch; not if it was to be ours."""
    if insisted(options):
        return
    if len(_torchs) >= MOST_KEYS:
        _torchs.clear()
    if not torch.is_autocast_enabled(a.device.type):
        _torchs[_key(a, b, bias, options)] = options


def forget() -> None:
    """Forget all products: plans may be made of something else from now on."""
    _torchs.clear()
