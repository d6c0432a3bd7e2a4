"""Products like one that ``gemm`` has computed: from addresses to a launch.

Looking at arrays takes half of what ``gemm`` takes of the host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.targets.hopper.launching import occupancy
from tiercel.targets.hopper.products.product import prepared_for

if TYPE_CHECKING:
    import torch

    from tiercel.targets.hopper.launching.movable import Ready


class Again:
    """Products of matrices of the same kinds on one device."""

    __slots__ = "_multiprocessors", "_ready"

    def __init__(self, ready: Ready) -> None:
        self._ready, self._multiprocessors = ready, occupancy.most_multiprocessors

    def run(self, addresses: list[int], stream: int) -> bool:
        """Enqueue on a stream of the current device; False where ``gemm`` has to look.

        ``addresses``: of a, b and out, each aligned as the one that ``gemm`` saw.
        """
        ready = self._ready
        movable = ready.movable
        resized = self._multiprocessors != occupancy.most_multiprocessors
        if resized or not movable.reaches(addresses):
            return False
        with movable.lock:
            movable.to(addresses)
            ready.launch.run(stream)
        return True


def again(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> Again | None:
    """How to repeat ``gemm(a, b, out=out)``, which has run; None where it takes more than that:
    memory for parts of K.
    """
    ready = prepared_for(a, b, out)
    return None if ready is None or ready.choice[1] is not None else Again(ready)
