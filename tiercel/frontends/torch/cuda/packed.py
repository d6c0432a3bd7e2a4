"""Weights in packed form on a CUDA device, as the engine hands them out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from tiercel.planner.gpu.variants import Variant


@dataclass(frozen=True, eq=False)
class Packed:
    """``algorithm`` that ``panels`` are for (None: packing gains nothing), of ``kind`` "fused" or
    "portable", and the bytes of device memory they hold.
    """

    algorithm: str
    panels: Any
    nbytes: int
    kind: str = ""


@dataclass(frozen=True, eq=False)
class PortableWeight:
    """Planes of b (K, N) for a scheme around the vendor's library, and some elements of b."""

    planes: Any
    samples: tuple[torch.Tensor, torch.Tensor]

    def checked(self) -> Any:
        """The planes; of a b that has changed, such as the guard refuses, on the device."""
        from tiercel.targets.gpu import verdict

        verdict.check(self.planes.b, self.planes.extremes, self.samples)
        return self.planes


def pack(b: torch.Tensor, algorithm: str, variant: Variant) -> Packed:
    """The planes of b (K, N) for a portable variant."""
    from tiercel.targets.gpu import pack as pack_planes
    from tiercel.targets.gpu import verdict

    if b.is_conj():
        return Packed(algorithm, None, 0)  # its elements in memory are others
    made = pack_planes(b, variant.schemes)
    samples = verdict.samples_of(b)
    nbytes = made.nbytes + sum(x.numel() * x.element_size() for x in samples)
    return Packed(algorithm, PortableWeight(made, samples), nbytes, "portable")
