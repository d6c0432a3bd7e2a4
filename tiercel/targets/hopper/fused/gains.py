"""Gains of repeated products: two numbers on the device, which each product leaves to the next one.

A gain is the power of two that an operand is multiplied by before it is combined into float16
planes (``kernels/gain.cuh``). Gradients of a mean over many tokens are too small for float16 as
they are; but they are about as large in each step.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from typing import TYPE_CHECKING

from tiercel.targets.hopper.launching.lasting import lasting

if TYPE_CHECKING:
    import torch

#: Kinds of products on a device that have gains of their own. More of them share these: a gain that
#: does not suit is noticed.
KINDS = 4096

_left: dict[torch.device, Iterator[torch.Tensor]] = {}


def gains(device: torch.device) -> torch.Tensor:
    """Gains of A and B for a further kind of products, 1 at first.

    Their memory stays: a CUDA graph may know its address.
    """
    import torch

    if device not in _left:
        memory = lasting(2 * KINDS, device.index).view(torch.float32)
        _left[device] = cycle(memory.fill_(1).view(KINDS, 2).unbind())
    return next(_left[device])
