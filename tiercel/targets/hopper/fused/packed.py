"""A static right operand, combined once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tiercel.errors import TiercelValueError
from tiercel.lower.accumulator import AccumulatorProgram
from tiercel.targets.hopper.fused import planes, tables, verdict
from tiercel.targets.hopper.fused.tables import Fused, KernelPlane
from tiercel.targets.hopper.launching.launch import on_device
from tiercel.targets.hopper.operands.operand import Matrix, of_tensor, oriented

if TYPE_CHECKING:
    import torch

# Largest value of a plane after scaling: float16 ends at 65,504.
PLANE_LIMIT = 2.0**15
FLOAT8_LIMIT = 448.0  # the largest e4m3 number
# Operands with a largest value from here on are not scaled while they fit: rounding to multiples of
# 2^-24 is then nothing beside rounding to 11 bits, and stores have nothing to undo.
LEAST_LARGEST = 2.0**-6


@dataclass(frozen=True, eq=False)
class PackedOperand:
    """A static right operand with its combined planes.

    ``b`` is kept: plain planes are read from it in place, and the classical fallback needs it.
    ``scale`` is the power of two that the planes were multiplied by; ``bytes`` what they occupy.
    """

    b: torch.Tensor
    lowered: Fused
    memory: torch.Tensor
    scale: float

    @property
    def bytes(self) -> int:
        return self.memory.numel() * self.memory.element_size()


def pack(b: torch.Tensor, program: AccumulatorProgram) -> PackedOperand:
    """Combine the planes of a right operand (K, N) once. Waits for the device.

    Raises :class:`TiercelValueError` when the operand does not divide into the program's blocks or
    holds values that are not finite.
    """
    import torch

    matrix = of_tensor(b, "b")
    lowered = tables.lower(program, matrix.dtype)
    float8 = b.dtype.itemsize == 1
    largest = float((b.to(torch.bfloat16) if float8 else b).abs().amax())
    if not math.isfinite(largest):
        raise TiercelValueError(
            "b holds values that are not finite; a scheme would spread them over the whole result. "
            "Use the classical product"
        )
    terms = _most_terms(lowered.b_planes)
    scale = 1.0
    fits = LEAST_LARGEST <= largest <= PLANE_LIMIT / terms
    if largest and not fits and matrix.dtype == "bfloat16":  # plain planes are read in place
        scale = 2.0 ** math.floor(math.log2(PLANE_LIMIT / (terms * largest)))
    if largest and float8:
        scale = 2.0 ** math.floor(math.log2(FLOAT8_LIMIT / (terms * largest)))
    grid = right_grid(matrix, program)
    memory = torch.empty(
        planes.plane_bytes(grid, lowered.b_planes) // 2, dtype=torch.float16, device=b.device
    )
    record = torch.zeros(verdict.RECORD_WORDS, dtype=torch.int32, device=b.device)
    device = b.get_device()
    work = planes.combination(
        grid, lowered.b_planes, memory.data_ptr(), record.data_ptr(), scale, device
    )
    if work is not None:
        with on_device(device):
            work.run(torch.cuda.current_stream(b.device).cuda_stream)
        if record[verdict.REFUSED].item():
            raise TiercelValueError("b does not fit into its planes; use the classical product")
    return PackedOperand(b, lowered, memory, scale)


def fixed_scale(operand: str, planes: tuple[KernelPlane, ...]) -> float:
    """Power of two for planes of an operand that nobody has looked at.

    >>> from tiercel.lower.accumulator.program import Plane
    >>> fixed_scale("float8_e4m3fn", (KernelPlane(Plane(((0, 1.0), (1, -1.0), (2, 1.0))), True),))
    0.25
    """
    return 1.0 if operand != "float8_e4m3fn" else 2.0 ** -math.ceil(math.log2(_most_terms(planes)))


def _most_terms(planes: tuple[KernelPlane, ...]) -> float:
    """Largest value of a plane of blocks with values up to 1."""
    return max(sum(abs(c) for _, c in p.plane.terms) for p in planes)


def left_grid(a: Matrix, program: AccumulatorProgram) -> planes.BlockGrid:
    """Blocks of A (M, K), in the orientation that the kernel reads."""
    view, flipped = oriented(a, "a")
    return planes.grid_of(view, "a", (program.m, program.k), flipped)


def right_grid(b: Matrix, program: AccumulatorProgram) -> planes.BlockGrid:
    """Blocks of B (K, N). The kernel wants rows along K: the view of B is that of its transpose."""
    view, flipped = oriented(b.transposed, "b")
    return planes.grid_of(view, "b", (program.k, program.n), not flipped)
