"""CUDA C++ that loads operands 16 bytes a thread, for neighbours or for several pairs at once.

*Fours*: four lanes load float32 values for each other, and exchange them. *Eights*: a lane that
holds eight adjacent columns loads all of them.
"""

from __future__ import annotations

from tiercel.lower.epilogue.cuda.memory import is_repeated, used
from tiercel.lower.epilogue.cuda.names import POSITION, identifier
from tiercel.lower.epilogue.instance import Array, Instance, Operand


def can_be_fours(x: Operand, array: Array) -> bool:
    """Whether four lanes can load a tile operand for each other, 16 bytes at a time."""
    aligned = array.address % 16 == 0 and all(step % 4 == 0 for step in (array.strides or ())[:-1])
    alike = (x.kind, x.dtype, x.width) == ("tile", "float32", -1) and x.layout != "strided"
    return alike and x.repeated and x.spanning and aligned


def period(x: Operand, array: Array) -> int:
    """Columns of the product after which an operand of tiles repeats, 0 if it does not."""
    return int((array.shape or (0,))[-1] / 2.0 ** (x.width or 0)) if is_repeated(x) else 0


def load_fours(instance: Instance, names: tuple[str, ...]) -> list[str]:
    """Lines that fill ``tiles`` of n pairs with what this lane and the next three need."""
    lines = []
    for x in (instance.operand(name) for name in names):
        name = identifier(x.name)
        batch = f" + batch * p.{name}.batch" if x.batched else ""
        lines += [
            "#pragma unroll",
            "for (int half = 0; half < 2; ++half) {",
            f"  const float* at = p.{name}.data{batch} + rows[half] * p.{name}.row;",
            "#pragma unroll",
            "  for (int j = 0; j < n; j += 4) {",
            "    const int lane = threadIdx.x % 4;",
            f"    const int first = (col / 2 - lane + 4 * j & (p.{name}.period - 1)) + 4 * lane;",
            "    const float4 four = *reinterpret_cast<const float4*>(at + first);",
            *(f"    tiles[j + {i}][half].{name}[0] = four.{c};" for i, c in enumerate("xyzw")),
            "  }",
            "}",
        ]
    return lines


def settle_fours(names: tuple[str, ...]) -> list[str]:
    """Lines that give each lane its own values."""
    lines = []
    for name in map(identifier, names):
        values = [f"tiles[j + {i}][half].{name}[0]" for i in range(4)]
        lines += [
            "#pragma unroll",
            "for (int half = 0; half < 2; ++half)",
            "#pragma unroll",
            "  for (int j = 0; j < n; j += 4) {",
            f"    float x[4] = {{{', '.join(values)}}};",
            "    across_four(x);",
            *(f"    {value} = x[{i}];" for i, value in enumerate(values)),
            "  }",
        ]
    return lines


def can_be_eights(x: Operand, array: Array) -> bool:
    """Whether a lane can load an operand of 8 adjacent columns of the product in 16 bytes."""
    halves = (x.dtype in ("bfloat16", "float16"), x.width, x.repeated) == (True, 0, False)
    words = (x.dtype, x.width) == ("float32", -1) and (not x.repeated or x.spanning)
    item = 2 if halves else 4
    steps = (array.strides or ())[:-1]
    aligned = array.address % 16 == 0 and all(item * step % 16 == 0 for step in steps)
    return (halves or words) and x.layout == "vector" and not x.batched and aligned


def load_row_eights(instance: Instance, names: tuple[str, ...]) -> list[str]:
    """Lines that fill in the operands of rows of ``pairs``, four."""
    lines = []
    for x in used(instance, "rows"):
        if x.name in names:
            lines += _load_eights(x, "", "pairs[{}]")
    return lines


def load_tile_eights(instance: Instance, names: tuple[str, ...]) -> list[str]:
    """Lines that fill in the operands of tiles of ``pairs``, four in each of two rows."""
    lines = []
    for x in used(instance, "tile"):
        if x.name in names:
            start = f" + rows[half] * p.{identifier(x.name)}.row"
            inside = _load_eights(x, start, "pairs[{}][half]")
            lines += ["#pragma unroll", "for (int half = 0; half < 2; ++half) {"]
            lines += [*(f"  {line}" for line in inside), "}"]
    return lines


def _load_eights(x: Operand, start: str, pair: str) -> list[str]:
    name, kind = identifier(x.name), "float4" if x.dtype == "float32" else "uint4"
    at, member = POSITION[x.width or 0], "[0]" if x.dtype == "float32" else ".word[0]"
    if is_repeated(x):
        at = f"({at} & (p.{name}.period - 1))"
    return [
        f"const {kind} {name} = *reinterpret_cast<const {kind}*>(p.{name}.data{start} + {at});",
        *(f"{pair.format(i)}.{name}{member} = {name}.{lane};" for i, lane in enumerate("xyzw")),
    ]
