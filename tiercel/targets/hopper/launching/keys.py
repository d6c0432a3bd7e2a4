"""What a kept launch depends on of each tensor: the keys under which it is found again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tiercel.targets.hopper.operands.operand import ALIGNMENT

if TYPE_CHECKING:
    import torch


def key_of(tensor: torch.Tensor | None) -> Any:
    """All of a tensor that a launch depends on."""
    if tensor is None:
        return None
    return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), tensor.get_device()


def kind_of(tensor: torch.Tensor) -> Any:
    """All of a tensor that a launch depends on which can be moved to other addresses."""
    phase = tensor.data_ptr() % ALIGNMENT
    return phase, tensor.dtype, tensor.shape, tensor.stride(), tensor.get_device()
