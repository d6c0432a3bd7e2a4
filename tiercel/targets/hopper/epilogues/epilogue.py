"""A traced epilogue in the kernel: its CUDA text, its argument, and the arrays it fills."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tiercel.lower.epilogue import Array, Instance
from tiercel.lower.epilogue.cuda import prelude
from tiercel.lower.epilogue.cuda import source as struct_text
from tiercel.lower.epilogue.cuda.memory import used
from tiercel.lower.epilogue.cuda.names import identifier, storage
from tiercel.lower.epilogue.cuda.wide import can_be_eights, can_be_fours, period
from tiercel.lower.epilogue.instance import TileOutput
from tiercel.targets.hopper.config import CLOSING_BYTES, ITEM_BYTES, OUTPUTS, SHARED_BYTES, Tile
from tiercel.targets.hopper.operands.operand import ALIGNMENT

COLUMN_BLOCK = 16  # rows that one partial result of a column covers: those of a warp's fragment
LEAST_STAGES = 3


@dataclass(frozen=True)
class Staged:
    """Outputs that leave through shared memory and TMA, the first one's kind alike in all.

    ``operand``: the operand that TMA brings there before, "" if none. ``fours``: operands that four
    lanes load for each other. ``eights``: those of 8 adjacent columns that a lane loads at once,
    where B's rows come in the order of ``kernels/store_neighbours.cuh``; ``period``: columns after
    which all operands of tiles are the same again, 0 if there are others.
    """

    outputs: tuple[TileOutput, ...]
    shrink: int  # 1: one column of two columns of the product
    operand: str = ""
    fours: tuple[str, ...] = ()
    eights: tuple[str, ...] = ()
    period: int = 0

    @property
    def neighbours(self) -> bool:
        """Whether B's rows come in another order."""
        return bool(self.eights)

    @property
    def first(self) -> TileOutput:
        return self.outputs[0]

    def span(self, tile: Tile) -> int:
        """Bytes of a row of a stored subtile; mirrors ``Store`` in ``kernels/store.cuh``."""
        whole = 128 // ITEM_BYTES[self.first.dtype]
        return 64 if tile.n % (whole << self.shrink) or tile.accumulators > 128 else 128

    def operand_bytes(self, tile: Tile) -> int:
        """Shared memory for a consumer's part of the operand; mirrors ``Store`` as well."""
        if not self.operand:
            return 0
        span, outputs = self.span(tile), len(self.outputs)
        lead = 0 if outputs < 2 else outputs - 1 - (span == 128)
        places = max(lead + tile.blocks * tile.n * 2 // span, outputs + 1)
        return places * 64 * span


def staged_outputs(instance: Instance, N: int) -> Staged | None:
    """The first output of N or N/2 columns, and those of 16 bits and N columns that are like it.

    TMA needs rows of a multiple of 16 bytes. Other outputs are written by each thread, in pairs:
    32-byte sectors are then written in halves.
    """
    able = [
        x
        for x in instance.outputs
        if x.width <= 0
        and x.dtype in OUTPUTS
        and (N >> -x.width) * ITEM_BYTES[x.dtype] % ALIGNMENT == 0
    ]
    if not able:
        return None
    first = able[0]
    if first.width or ITEM_BYTES[first.dtype] != 2:
        return Staged((first,), int(first.width < 0))
    return Staged(tuple(x for x in able if (x.width, x.dtype) == (0, first.dtype)), 0)


def with_fours(
    staged: Staged | None, instance: Instance, arrays: Mapping[str, Array]
) -> Staged | None:
    """``staged`` with the operands that four lanes can load for each other, 32 columns at once."""
    if staged is None or ITEM_BYTES[staged.first.dtype] != 2:
        return staged
    found = [x.name for x in used(instance, "tile") if can_be_fours(x, arrays[x.name])]
    return replace(staged, fours=tuple(found))


def with_operand(
    staged: Staged | None, instance: Instance, arrays: Mapping[str, Array]
) -> Staged | None:
    """``staged`` with the first operand that TMA can bring to where the outputs are staged.

    It has 16 bits like them, N columns, and rows that start at multiples of 16 bytes.
    """
    if staged is None or staged.shrink or ITEM_BYTES[staged.first.dtype] != 2:
        return staged
    for x in used(instance, "tile"):
        alike = (x.width, x.layout, x.repeated, x.batched) == (0, "vector", False, instance.batched)
        if alike and x.dtype in OUTPUTS and ITEM_BYTES[x.dtype] == 2 and _aligned(arrays[x.name]):
            return replace(staged, operand=x.name)
    return staged


def with_eights(
    staged: Staged | None, instance: Instance, arrays: Mapping[str, Array], N: int
) -> Staged | None:
    """``staged`` with the operands that a lane can load 8 columns of at once.

    None unless one of them is an operand of tiles, and the outputs are such that each lane stores 8
    columns at once, too.
    """
    if staged is None or staged.shrink or ITEM_BYTES[staged.first.dtype] != 2 or N % 32:
        return None
    tiles = [x for x in used(instance, "tile") if can_be_eights(x, arrays[x.name])]
    rows = [x for x in used(instance, "rows") if can_be_eights(x, arrays[x.name])]
    if instance.batched or not tiles:
        return None
    whole = {period(x, arrays[x.name]) for x in used(instance, "tile")}
    return replace(
        staged,
        eights=tuple(x.name for x in (*tiles, *rows)),
        period=whole.pop() if len(whole) == 1 else 0,
    )


def fits_neighbours(tile: Tile) -> bool:
    """Whether the kernel can store a tile's neighbours: ``kernels/store_neighbours.cuh``."""
    alone = tile.schedule == "cooperative" and tile.blocks == 1 and tile.n % 64 == 0
    return alone and tile.n >= 128 and tile.n // tile.cluster_m % 32 == 0


def _aligned(x: Array) -> bool:
    steps = (x.strides or ())[:-1]
    return x.address % ALIGNMENT == 0 and all(2 * step % ALIGNMENT == 0 for step in steps)


def fitted(tile: Tile, staged: Staged | None) -> tuple[Tile, Staged | None]:
    """As many stages as there is memory for beside the operand; without it if those are too few."""
    if staged is None or not staged.operand:
        return tile, staged
    needed = tile.shared_bytes + tile.more_bytes(staged.operand_bytes(tile)) + CLOSING_BYTES
    stages = tile.stages - max(0, -((SHARED_BYTES - needed) // (tile.stage_bytes + 16)))
    if stages < LEAST_STAGES:
        return tile, replace(staged, operand="")
    return replace(tile, stages=stages), staged


@dataclass(frozen=True)
class EpilogueText:
    """CUDA text before ``Config``, the type to name there, and how many tensor maps it needs.

    ``closes``: rows are reduced, and completed by idle warps where there are any.
    """

    text: str
    type: str
    maps: int = 1
    closes: bool = False


def epilogue_text(
    instance: Instance, staged: Staged | None, whole: bool = False, unit: bool = False
) -> EpilogueText:
    """The generated struct, with the adaptor that ``kernels/traced.cuh`` asks for.

    ``whole``: the columns of a tile divide those of the product. ``unit``: alpha is 1.
    """
    outputs = staged.outputs if staged else ()
    take, further = "", ""
    if staged is not None:
        value = f"outputs.{identifier(staged.first.name)}"
        take = f"low = {value}[0];" if staged.shrink else f"low = {value}[0], high = {value}[1];"
    for i, x in enumerate(outputs[1:]):
        value = f"outputs.{identifier(x.name)}"
        further += f"\n    pairs[{i}] = {storage(x.dtype)}::pack({value}[0], {value}[1]);"
    rest = "\n".join(
        f"    E::store_{identifier(x.name)}(p, batch, row, column, outputs);"
        for x in instance.outputs
        if x not in outputs
    )
    bring = ""
    if staged is not None and staged.operand:
        bring = f"tile.{identifier(staged.operand)}.word[0] = pair;"
    adaptor = f"""\
struct Main {{
  using E = tiercel::Epilogue;
  static constexpr int shrink = {staged.shrink if staged else 0};
  static constexpr int further = {max(len(outputs) - 1, 0)};
  static constexpr bool staged = {"true" if staged else "false"};
  static constexpr bool has_rest = {"true" if rest else "false"};
  static constexpr bool whole = {"true" if whole else "false"};
  static constexpr bool unit = {"true" if unit else "false"};
  static constexpr bool neighbours = {"true" if staged and staged.neighbours else "false"};
  static constexpr int period = {staged.period if staged else 0};
  static __device__ void bring(E::Tile& tile, u32 pair) {{ {bring} }}
  static __device__ void take(const E::Outputs& outputs, float& low, float& high) {{ {take} }}
  template <int m>
  static __device__ void take_further(const E::Outputs& outputs, u32 (&pairs)[m]) {{{further}
  }}
  static __device__ void store_rest(const E::Params& p, int batch, int row, int column,
                                    const E::Outputs& outputs) {{
{rest}
  }}
}};
"""
    operand = staged.operand if staged else ""
    fours, eights = (staged.fours, staged.eights) if staged else ((), ())
    struct = struct_text(instance, brought=operand, fours=fours, eights=eights)
    text = f"{prelude()}\n{struct}\n{adaptor}"
    maps = max(len(outputs), 1) + bool(operand)
    closes = any(x.over == "row" for x in instance.partials)
    return EpilogueText(text, "Traced<tiercel::Epilogue, Main>", maps, closes)
