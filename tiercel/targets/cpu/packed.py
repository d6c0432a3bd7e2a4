"""A static operand, packed and summed once: ``tiercel.pack``."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tiercel.lower.recipe import Recipe
from tiercel.lower.steps import steps
from tiercel.targets.cpu import params
from tiercel.targets.cpu.codegen import norms
from tiercel.targets.cpu.shortcut.address import address

ALIGN = 4096


@dataclass(frozen=True)
class Packed:
    """B packed for all products that share its K, N, program and blocking, whatever their M.

    ``memory`` holds one region of ``pass_bytes`` per step (see ``lower/steps.py``); ``scales`` the
    guard's statistics over all of B (least, most and total 1-norm of a column within a block).
    """

    recipe: Recipe
    memory: np.ndarray
    scales: np.ndarray
    pass_bytes: int

    @classmethod
    def empty(cls, recipe: Recipe) -> Packed:
        blocking = recipe.blocking
        count = len(steps(recipe))
        nbytes = count * blocking.packed_pass
        raw = np.empty(nbytes + ALIGN, np.uint8)
        start = -raw.ctypes.data % ALIGN
        memory = raw[start : start + nbytes]
        scales = np.zeros(8, recipe.compute)
        scales[norms.LEAST] = np.inf
        return cls(recipe, memory, scales, blocking.packed_pass)

    @property
    def nbytes(self) -> int:
        """Bytes this operand holds."""
        return self.memory.nbytes + self.scales.nbytes

    def address(self, index: int) -> int:
        """Address of the region of step ``index``."""
        return self._memory_address + index * self.pass_bytes

    @cached_property
    def _memory_address(self) -> int:
        return address(self.memory)

    @cached_property
    def scales_address(self) -> int:
        """Address of ``scales``."""
        return address(self.scales)

    def merge_scales(self, stats: int, threads: int) -> None:
        """Fold the threads' statistics records at address ``stats`` into ``scales``."""
        kind = ctypes.c_float if self.recipe.compute == "float32" else ctypes.c_double
        scales = self.scales
        for thread in range(threads):
            least, most, total = (kind * 3).from_address(stats + thread * params.LINE)
            scales[norms.LEAST] = min(scales[norms.LEAST], least)
            scales[norms.MOST] = max(scales[norms.MOST], most)
            with np.errstate(over="ignore"):  # Inf says that the guard must refuse
                scales[norms.TOTAL] += total
