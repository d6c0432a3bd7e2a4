"""A traced epilogue in the kernel: its CUDA text, its argument, and the arrays it fills."""

from __future__ import annotations

from dataclasses import dataclass

from tiercel.lower.epilogue import Instance
from tiercel.lower.epilogue.cuda import prelude
from tiercel.lower.epilogue.cuda import source as struct_text
from tiercel.lower.epilogue.cuda_names import identifier
from tiercel.lower.epilogue.instance import TileOutput
from tiercel.targets.hopper.config import ITEM_BYTES, OUTPUTS
from tiercel.targets.hopper.operand import ALIGNMENT

COLUMN_BLOCK = 16  # rows that one partial result of a column covers: those of a warp's fragment


def staged_output(instance: Instance, N: int) -> TileOutput | None:
    """The output that leaves through shared memory and TMA: the first of N or N/2 columns.

    TMA needs rows of a multiple of 16 bytes. Other outputs are written by each thread, in pairs.
    """
    for output in instance.outputs:
        item = ITEM_BYTES.get(output.dtype, 0)
        if (
            output.width <= 0
            and output.dtype in OUTPUTS
            and (N >> -output.width) * item % ALIGNMENT == 0
        ):
            return output
    return None


@dataclass(frozen=True)
class EpilogueText:
    """CUDA text before ``Config``, and the type to name there."""

    text: str
    type: str


def epilogue_text(instance: Instance, staged: TileOutput | None) -> EpilogueText:
    """The generated struct, with the adaptor that ``kernels/epilogue.cuh`` asks for."""
    take = ""
    if staged is not None:
        value = f"outputs.{identifier(staged.name)}"
        take = f"low = {value}[0];" if staged.width else f"low = {value}[0], high = {value}[1];"
    rest = "\n".join(
        f"    E::store_{identifier(x.name)}(p, batch, row, column, outputs);"
        for x in instance.outputs
        if x is not staged
    )
    adaptor = f"""\
struct Main {{
  using E = tiercel::Epilogue;
  static constexpr int shrink = {int(staged is not None and staged.width < 0)};
  static constexpr bool staged = {"true" if staged is not None else "false"};
  static __device__ void take(const E::Outputs& outputs, float& low, float& high) {{ {take} }}
  static __device__ void store_rest(const E::Params& p, int batch, int row, int column,
                                    const E::Outputs& outputs) {{
{rest}
  }}
}};
"""
    text = f"{prelude()}\n{struct_text(instance)}\n{adaptor}"
    return EpilogueText(text, "Traced<tiercel::Epilogue, Main>")
