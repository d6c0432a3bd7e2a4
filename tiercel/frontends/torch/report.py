"""What ``patch`` did, as a table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True)
class Layer:
    """One ``nn.Linear`` of the model: ``name`` as in ``named_modules``, weight (N, K).

    ``packed_bytes`` is the memory held beside the weight; ``decision`` says why a layer was left
    alone.
    """

    name: str
    N: int
    K: int
    dtype: torch.dtype
    patched: bool
    decision: str
    packed_bytes: int = 0


@dataclass(frozen=True)
class Report:
    """All linear layers of a model and what became of each; ``str()`` is a table.

    As a context manager it takes the patch back when the block ends. It is falsy: what changes
    its argument in place returns nothing to use instead, so ``model = patch(model) or model``
    reads as usual.
    """

    layers: tuple[Layer, ...]
    dry_run: bool
    model: Any = field(repr=False, compare=False)

    @property
    def patched(self) -> int:
        """Number of layers whose forward was replaced (would be, in a dry run)."""
        return sum(layer.patched for layer in self.layers)

    @property
    def packed_bytes(self) -> int:
        """Memory that packed weights hold in addition to the model, in bytes."""
        return sum(layer.packed_bytes for layer in self.layers)

    def __bool__(self) -> bool:
        return False

    def __enter__(self) -> Report:
        return self

    def __exit__(self, *exception: object) -> None:
        from tiercel.frontends.torch.patch import unpatch

        if not self.dry_run:
            unpatch(self.model)

    def __str__(self) -> str:
        verb = "would be patched" if self.dry_run else "patched"
        head = f"{self.patched} of {len(self.layers)} linear layers {verb}"
        if self.packed_bytes:
            head += f", {self.packed_bytes / 2**20:.1f} MiB of packed weights"
        rows = [("layer", "N × K", "dtype", "packed", "decision")]
        rows += [
            (
                layer.name or "(model)",
                f"{layer.N} × {layer.K}",
                str(layer.dtype).removeprefix("torch."),
                f"{layer.packed_bytes / 2**20:.1f} MiB" if layer.packed_bytes else "",
                layer.decision,
            )
            for layer in self.layers
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        return "\n".join([head, *lines])
