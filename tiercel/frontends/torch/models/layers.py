"""Which modules are linear layers: ``nn.Linear``, and ``Conv1D`` of Transformers."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True)
class Kind:
    """A class of linear layers. ``transposed``: its weight is (K, N), not (N, K)."""

    cls: type[nn.Module]
    transposed: bool

    def weight(self, module: Any) -> torch.Tensor:
        """The module's weight as w (N, K): a view of the parameter at most."""
        return module.weight.t() if self.transposed else module.weight


_LINEAR = Kind(nn.Linear, transposed=False)


def kind_of(module: nn.Module) -> Kind | None:
    """The kind of linear layer that a module is an instance of; None for all other modules."""
    if isinstance(module, nn.Linear):
        return _LINEAR
    # Its instances exist only where its module has been imported.
    transformers = sys.modules.get("transformers.pytorch_utils")
    if transformers is not None and isinstance(module, transformers.Conv1D):
        return Kind(transformers.Conv1D, transposed=True)
    return None
