"""What prepared work depends on of a tensor: how it lies, not where."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from tiercel.targets.gpu.launch import ALIGNMENT, stand_in


class Layout(NamedTuple):
    """What prepared work depends on of a 2-D tensor; ``phase``: its address, modulo 16."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: int
    conjugated: bool
    phase: int

    @classmethod
    def of(cls, x: Tensor) -> Layout:
        phase = x.data_ptr() % ALIGNMENT
        return cls(x.shape, x.stride(), x.dtype, x.get_device(), x.is_conj(), phase)

    def stand_in(self, slot: int) -> Tensor:
        """A tensor like it, without memory."""
        made = stand_in(slot, self.shape, self.strides, self.dtype)
        return made.conj() if self.conjugated else made


def as_stored(x: Tensor) -> Tensor:
    """``x`` without the conjugation that is still to be done."""
    return x.conj() if x.is_conj() else x
