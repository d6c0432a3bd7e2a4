"""What all products of one shape by one scheme with one traced epilogue have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.lower.accumulator import AccumulatorProgram, classical
from tiercel.lower.epilogue import Epilogue
from tiercel.lower.epilogue.cuda.params import addresses
from tiercel.targets.hopper.epilogues.epilogue import (
    COLUMN_BLOCK,
    Staged,
    epilogue_text,
    staged_outputs,
)
from tiercel.targets.hopper.epilogues.filled import Filled
from tiercel.targets.hopper.epilogues.plan import (
    ARRIVALS_BYTES,
    EpiloguePlan,
    counters,
    plan,
    traced_params,
)
from tiercel.targets.hopper.fused.ending import Ending
from tiercel.targets.hopper.fused.packed import PackedOperand
from tiercel.targets.hopper.fused.schedule import TILE
from tiercel.targets.hopper.launching.tensor_map import TensorMap
from tiercel.targets.hopper.operands.operand import Matrix, of_tensor, oriented
from tiercel.targets.hopper.products.checks import check_devices

if TYPE_CHECKING:
    import torch

Operands = Mapping[str, "torch.Tensor | float"]

SPAN = 64  # bytes of a row that one TMA store takes: ``kernels/store.cuh``, where C postpones


@dataclass(frozen=True, eq=False)
class FusedEpilogue:
    """What such products share.

    ``arrays``: what a call fills, as a classical kernel's with its tiles would, but for ``blocks``,
    the partial results of a row. ``counted``: counters that the kernel needs.
    """

    program: AccumulatorProgram
    arrays: EpiloguePlan
    filled: Filled
    staged: Staged | None
    blocks: int
    counted: int

    def ending(
        self,
        a: torch.Tensor,
        filled: Mapping[str, torch.Tensor],
        operands: Operands,
        counted: int,
        alpha: float,
    ) -> Ending:
        """For ``prepare``; ``filled``: the arrays; ``counted``: address of the counters."""
        plan, staged, left = self.arrays, self.staged, of_tensor(a, "a")

        def maps(program: AccumulatorProgram) -> Iterator[TensorMap]:
            for i in range(program.m):
                for j in range(program.n):
                    if staged is None:  # not used: any will do
                        yield oriented(left, "a")[0].tensor_map(64, span=SPAN)
                        continue
                    for x in staged.outputs:
                        d = of_tensor(filled[x.name], x.name)
                        rows, columns = d.rows // program.m, d.columns // program.n
                        block = d.block(i * rows, j * columns, rows, columns)
                        yield block.tensor_map(64, span=SPAN)

        whole = plan.N // self.program.n % TILE.n == 0
        dtype = staged.first.dtype if staged else left.dtype
        return Ending(
            epilogue_text(plan.instance, staged, whole, alpha == 1),
            Matrix(0, dtype, plan.M, plan.N, plan.N, 1),
            maps,
            traced_params(counted, self.blocks, plan.argument(filled, operands)),
            (0, *(ARRIVALS_BYTES + x for x in addresses(plan.instance))),
            tuple(filled.values()),
        )


def fused_plan(
    a: torch.Tensor, b: PackedOperand | torch.Tensor, epilogue: Epilogue, operands: Operands
) -> FusedEpilogue:
    """Plan a · b with ``epilogue``; arguments and errors as of ``fused.fused_epilogue``."""
    tensors = {name: x for name, x in operands.items() if not isinstance(x, (int, float))}
    matrix = b.b if isinstance(b, PackedOperand) else b
    program = b.lowered.program if isinstance(b, PackedOperand) else classical()
    check_devices({"a": a, "b": matrix, **tensors})
    left, right = of_tensor(a, "a"), of_tensor(matrix, "b")
    if a.dtype.itemsize != 2:
        raise TiercelTypeError(
            f"a is {a.dtype}; a scheme takes an epilogue after products of 16-bit operands. Pass "
            "those, or apply the epilogue to the product"
        )
    M, N = left.rows, right.columns
    made = plan(left, right, (), epilogue, operands, TILE, a.get_device())
    staged = staged_outputs(made.instance, N)
    shrink = staged.shrink if staged else 0
    if made.partials and M % (program.m * COLUMN_BLOCK):
        raise TiercelValueError(
            f"a has {M} rows; with reductions a scheme of {program.m} blocks of rows needs a "
            f"multiple of {program.m * COLUMN_BLOCK}. Pad a, or use the classical kernel"
        )
    if N % (program.n * 8 << shrink):
        raise TiercelValueError(
            f"the product has {N} columns; {program.n} blocks of a multiple of {8 << shrink} are "
            "needed. Use the classical kernel"
        )
    blocks = program.n * -(-N // (program.n * TILE.n))
    partials = dict(made.partials)
    for x in made.instance.partials:
        if x.over == "row":
            (rows, _, *pair), dtype = partials[x.name]
            partials[x.name] = (rows, blocks, *pair), dtype
    made = replace(made, partials=partials)
    counted = counters(M, blocks) if made.results else 0
    return FusedEpilogue(program, made, Filled.by(made), staged, blocks, counted)
