"""What takes the place of ``nn.Linear.forward`` on a patched layer."""

from __future__ import annotations

import copy
from typing import Any

import torch

from tiercel.frontends.torch.frozen import FrozenWeight
from tiercel.frontends.torch.matmul import linear
from tiercel.options import Options


class PlannedForward:
    """``forward`` of one layer, bound to it as a method is; nothing of the layer is cached.

    Weight and bias are read when called, after the hooks that gather or replace them. A copy of
    the layer gets a forward of its own; a pickled layer is an ordinary ``nn.Linear`` that loads
    without tiercel.
    """

    def __init__(self, layer: torch.nn.Linear, options: Options, pack: bool) -> None:
        self.layer = layer
        self.options = options
        self.frozen = FrozenWeight(options) if pack else None

    def __call__(self, input: torch.Tensor) -> torch.Tensor:
        layer = self.layer
        return linear(input, layer.weight, layer.bias, None, self.options, self.frozen)

    def __deepcopy__(self, memo: dict[int, Any]) -> PlannedForward:
        layer = copy.deepcopy(self.layer, memo)
        return PlannedForward(layer, self.options, self.frozen is not None)

    def __reduce__(self) -> tuple[Any, ...]:
        # As for a bound method. The layer is still empty when this is loaded, so that the
        # attribute found is the method of its class.
        return getattr, (self.layer, "forward")


def planned_forward(layer: torch.nn.Module) -> PlannedForward | None:
    """The forward that ``patch`` gave to the layer, None if there is none."""
    forward = vars(layer).get("forward")
    return forward if type(forward) is PlannedForward else None
