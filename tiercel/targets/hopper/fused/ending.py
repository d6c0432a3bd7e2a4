"""What follows a fused product inside its kernel, instead of an output matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tiercel.lower.accumulator import AccumulatorProgram
from tiercel.targets.hopper.epilogues.epilogue import EpilogueText
from tiercel.targets.hopper.launching.tensor_map import TensorMap
from tiercel.targets.hopper.operands.operand import Matrix

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False)
class Ending:
    """What follows the product inside the kernel: an epilogue, see ``epilogues/fused_plan.py``.

    ``d``: stands for the product's own matrix, of the outputs' dtype. ``maps``: of the output's
    blocks, given the grid of a scheme. ``params``: the epilogue's argument, with addresses at the
    offsets ``addresses``. ``kept``: what these point to.
    """

    text: EpilogueText
    d: Matrix
    maps: Callable[[AccumulatorProgram], Iterable[TensorMap]]
    params: bytes
    addresses: tuple[int, ...]
    kept: tuple[torch.Tensor, ...]
