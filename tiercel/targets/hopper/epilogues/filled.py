"""The arrays that a product with an epilogue fills, allocated in each call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tiercel.targets.hopper.epilogues.plan import EpiloguePlan, Shape
from tiercel.targets.hopper.launching.keys import kind_of

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False)
class Filled:
    """``arrays``: name, shape and dtype of tiles, partial results and finished rows.

    ``first``: the tile that a caller may bring, None where there is no tile.
    """

    arrays: tuple[tuple[str, Shape, torch.dtype], ...]
    first: str | None

    @classmethod
    def by(cls, plan: EpiloguePlan) -> Filled:
        """All that a call with this plan fills."""
        import torch

        kinds = {**plan.outputs, **plan.partials, **plan.results}
        arrays = tuple((x, shape, getattr(torch, name)) for x, (shape, name) in kinds.items())
        return cls(arrays, next(iter(plan.outputs), None))

    def allocate(self, like: torch.Tensor, out: torch.Tensor | None) -> dict[str, torch.Tensor]:
        """New arrays on the device of ``like``; ``out`` is the first tile if given."""
        if out is None:
            return {x: like.new_empty(shape, dtype=dtype) for x, shape, dtype in self.arrays}
        return {
            x: out if x == self.first else like.new_empty(shape, dtype=dtype)
            for x, shape, dtype in self.arrays
        }


def kinds_of(operands: Mapping[str, torch.Tensor | float]) -> tuple[Any, ...]:
    """All of an epilogue's operands that a launch depends on: numbers are part of it."""
    return tuple((x, y if isinstance(y, (int, float)) else kind_of(y)) for x, y in operands.items())


def without_numbers(kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    """All that a plan depends on: that they are numbers."""
    return tuple((x, None if isinstance(y, float) else y) for x, y in kinds)
