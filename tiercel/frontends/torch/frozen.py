"""A frozen weight, packed once and packed again whenever it changed."""

from __future__ import annotations

from typing import Any

import torch

from tiercel.frontends.numpy.packed import Packed
from tiercel.frontends.numpy.packed import pack as pack_array
from tiercel.frontends.torch.operands import are_plain
from tiercel.options import Options

#: dtypes whose packed form NumPy arrays can describe.
_DTYPES = (torch.float32, torch.float64, torch.float16)


class FrozenWeight:
    """Holds the packed form of one weight (N, K), valid for one state of that weight.

    The state is the memory's address and torch's version counter, which every in-place change
    raises. The packed form keeps the old memory alive, so that no new weight gets its address.
    Writes through ``weight.data`` raise no counter and cannot be seen.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._kept: tuple[Any, Packed] | None = None

    @property
    def nbytes(self) -> int:
        """Memory of the packed form, in bytes."""
        return 0 if self._kept is None else self._kept[1].nbytes

    def packed(self, weight: torch.Tensor) -> Packed | None:
        """The packed form of ``weight.T``; None if it is not frozen, or packing gains nothing."""
        if not packable(weight):
            self._kept = None
            return None
        state = (weight.data_ptr(), weight._version, weight.shape, weight.stride(), weight.dtype)
        kept = self._kept
        if kept is None or kept[0] != state:
            kept = (state, pack_array(weight.detach().t().numpy(), None, self._options))
            self._kept = kept
        return kept[1] if kept[1].panels is not None else None


def packable(weight: torch.Tensor) -> bool:
    """Whether a weight is frozen, has a version counter, and is of a dtype that can be packed."""
    return (
        are_plain(weight)
        and not weight.requires_grad
        and not (weight.is_inference() or weight.is_neg())
        and weight.is_cpu
        and weight.dtype in _DTYPES
        and weight.dim() == 2
        and weight.numel() > 0
    )
