"""PyTorch tensors: products of large CPU matrices run here, everything else stays torch's.

In the order of a call: ``operands`` decides what is ours to compute (``torchs_own`` has the rest),
``autocast`` converts, ``fold`` makes one product or a stack of them, ``engine`` plans and runs it
on NumPy views of the tensors, ``autograd`` differentiates it. ``patch`` puts ``linear`` into a
model, ``frozen`` keeps packed weights, ``report`` says what was done.
"""

from typing import Any, NoReturn

from tiercel.errors import TiercelTypeError
from tiercel.frontends.torch.matmul import linear, matmul
from tiercel.frontends.torch.patch import patch, unpatch

__all__ = ["linear", "matmul", "pack", "patch", "unpatch"]


def pack(b: Any, rows: int | None, options: Any) -> NoReturn:
    """Refused: a packed tensor would have no gradient and no version to check."""
    raise TiercelTypeError(
        "a tensor cannot be packed by itself; allowed: NumPy arrays, or the frozen weights of a "
        "model, tiercel.patch(model, pack_weights=True)"
    )
