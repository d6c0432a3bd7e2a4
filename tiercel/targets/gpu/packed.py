"""A static right operand, its planes computed once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tiercel.errors import TiercelValueError
from tiercel.targets.gpu.recipe import Recipe


@dataclass(frozen=True)
class Packed:
    """``b`` (K, N) with the planes of every outer product, and the guard's extremes.

    Valid as long as ``b`` is not written to, which ``fresh`` checks. ``b`` itself is kept, not
    copied: blocks used in place and data that the guard refuses are read from it.
    """

    b: Tensor
    recipe: Recipe
    planes: Tensor
    extremes: Tensor
    version: int

    @property
    def nbytes(self) -> int:
        """Bytes of device memory held beyond ``b``."""
        return sum(x.numel() * x.element_size() for x in (self.planes, self.extremes))

    def fresh(self) -> Packed:
        """Itself.

        Raises:
            TiercelValueError: ``b`` was changed after it was packed.
        """
        if version(self.b) != self.version:
            raise TiercelValueError(
                f"the packed operand {tuple(self.b.shape)} was changed in place after packing "
                f"(version {self.version}, now {version(self.b)}); pack it again"
            )
        return self


def version(x: Tensor) -> int:
    """How often PyTorch has changed ``x`` in place; tensors of inference mode do not count."""
    return 0 if torch.is_inference(x) else x._version
