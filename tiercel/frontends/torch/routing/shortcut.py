"""What is known of products that were computed before: that they are torch's, or how they ran.

Products too small for any plan are torch's, and so are those that a plan left to it. Finding out
takes 30 us, and a decode step has hundreds of such calls; knowing takes 2 us. Others have a plan of
ours (``repeated.py``). A key holds all that a plan depends on but the number of threads, which does
not change what torch is better at. Under autocast, where operands are converted first, nothing is
known.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from tiercel.frontends.torch.engine import engine_for
from tiercel.frontends.torch.routing.route import insisted
from tiercel.frontends.torch.tensors.precision import in_tf32
from tiercel.options import Options

MOST_KEYS = 4096

#: What is known of a product that is torch's.
TORCHS = object()


class _Planned:
    request_of = None  # which is no way to run it again, see ``repeated.run``


#: What is known of a product that a plan of ours gains by, and that autograd has followed so far.
PLANNED = _Planned()

#: The same of one that is torch's where autograd follows it.
PLANNED_ALONE = _Planned()

#: Key of a product -> what is known, and its options, which a key names by address.
_known: dict[Any, tuple[Any, Options]] = {}


def _key(a: torch.Tensor, b: torch.Tensor, bias: Any, columns_of: int, options: Options) -> Any:
    # The device by its number: hashing a ``torch.device`` takes 0.3 us.
    return (
        id(options), columns_of, bias is None, a.shape, a.stride(), b.shape, b.stride(),
        a.dtype, b.dtype, a.get_device(), in_tf32(a),
    )  # fmt: skip


def look_up(a: Any, b: Any, bias: Any, columns_of: int, options: Options) -> Any:
    """What is known of the product of a and b, whose axis ``columns_of`` is N: ``TORCHS``,
    ``PLANNED`` or how it ran.

    None where nothing is, and for all that is not a pair of exact tensors or parameters.
    """
    if type(a) is not Tensor or (type(b) is not Parameter and type(b) is not Tensor):
        return None
    device = "cuda" if a.is_cuda else "cpu" if a.is_cpu else a.device.type
    engine = engine_for(device)
    if torch._C._is_tracing():
        return None
    if engine is None:
        return None if insisted(options) else TORCHS
    if torch.is_autocast_enabled(device):
        return None
    try:
        if a.numel() * b.shape[columns_of] < engine.LEAST_WORK.get(a.dtype, 0):
            return None if insisted(options) else TORCHS
        found = _known.get(_key(a, b, bias, columns_of, options))
        return None if found is None else found[0]
    except (IndexError, RuntimeError):  # a scalar, a layout without strides
        return None


def leave_to_torch(
    a: torch.Tensor, b: torch.Tensor, bias: Any, columns_of: int, options: Options
) -> None:
    """Remember that a plan left the product of a and b to torch; not if it was to be ours."""
    if not insisted(options):
        keep(TORCHS, a, b, bias, columns_of, options)


def keep(
    what: Any, a: torch.Tensor, b: torch.Tensor, bias: Any, columns_of: int, options: Options
) -> None:
    """Let ``look_up`` find ``what`` for products like that of a and b."""
    if len(_known) >= MOST_KEYS:
        _known.clear()
    if not torch.is_autocast_enabled(a.device.type):
        _known[_key(a, b, bias, columns_of, options)] = what, options


def forget() -> None:
    """Forget all products: plans may be made of something else from now on."""
    _known.clear()
