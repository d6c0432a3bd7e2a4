"""CUDA C++ for what surrounds the body: parameters, values in registers, loads and stores.

Here a thread loads what its own pair of columns needs; see ``wide.py`` for 16 bytes at a time,
``partials.py`` for what rows and columns reduce to.
"""

from __future__ import annotations

from tiercel.lower.epilogue.cuda.body import lanes
from tiercel.lower.epilogue.cuda.expression import HOLDER
from tiercel.lower.epilogue.cuda.names import POSITION, identifier, storage, value_type
from tiercel.lower.epilogue.cuda.partials import partial_type, partials
from tiercel.lower.epilogue.instance import Instance, Operand, TileOutput

#: Argument of `apply` -> (its struct, what says which elements, what it has).
HOLDERS = {
    "scalars": ("Scalars", "int batch", "the same for a whole matrix"),
    "rows": ("Row", "int batch, int col, int ahead", "one value for each column"),
    "columns": ("Column", "int batch, int row", "one value for each row"),
    "tile": ("Tile", "int batch, int row, int col, int ahead", "one value for each element"),
}


def params(instance: Instance) -> list[str]:
    """Members of ``Params``, in the order of `params.params_dtype`."""
    members = ["int columns;  // N of the accumulator"]
    for x in instance.operands:
        name = identifier(x.name)
        if x.by_value:
            members.append(f"float {name};")
        else:
            kind = "Repeated" if is_repeated(x) else "Array"
            members.append(f"{kind}<const {storage(x.dtype)}> {name};")
    members += [f"Array<{storage(x.dtype)}> {identifier(x.name)};" for x in instance.outputs]
    members += [f"Array<{partial_type(x)}> {identifier(x.name)};" for x in instance.partials]
    rows = partials(instance, "row")
    return members + [f"Array<float> {identifier(x.name)}_result;" for x in rows]


def is_repeated(x: Operand) -> bool:
    """Whether an operand is read modulo its period: repeated, and with columns at all."""
    return x.repeated and x.kind in ("row", "tile")


def used(instance: Instance, holder: str) -> list[Operand]:
    """Operands that a holder has values of: those of its kind that an expression reads."""
    read = {x.value for x in instance.nodes if x.op == "operand"}
    return [x for x in instance.operands if HOLDER[x.kind] == holder and x.name in read]


def members(instance: Instance, holder: str) -> list[str]:
    """Members of the struct of a holder."""
    return [_member(x, instance) for x in used(instance, holder)]


def _member(x: Operand, instance: Instance) -> str:
    name, count = identifier(x.name), lanes(x.width)
    if x.kind not in ("row", "tile"):
        return f"{'int' if _beside_index(x, instance) else value_type(x.dtype)} {name};"
    if x.layout == "vector" and count > 1 and x.dtype in ("bfloat16", "float16"):
        return f"Packed<{storage(x.dtype)}, {count}> {name};"
    return f"{value_type(x.dtype)} {name}[{count}];"


def load(instance: Instance, holder: str, left_out: tuple[str, ...] = ()) -> list[str]:
    """Lines that fill ``values``, the struct of a holder, for column ``col + ahead`` if any.

    What repeats is looked up at ``col``, and then so much further: one address for many loads.
    """
    there = [x for x in used(instance, holder) if x.name not in left_out]
    first = [line for x in there if x.spanning for line in _load(x, instance)]
    rest = [line for x in there if not x.spanning for line in _load(x, instance)]
    moved = ["col += ahead;"] if rest and holder in ("rows", "tile") else []
    return [*first, *moved, *rest]


def _beside_index(x: Operand, instance: Instance) -> bool:
    """Whether an integer is only compared with indices of columns, which have 32 bits."""
    if not x.dtype.startswith("int"):
        return False
    users = [
        y for y in instance.nodes if any(z.value == x.name for z in y.args if z.op == "operand")
    ]
    return all({z.op for z in y.args} == {"operand", "index"} for y in users)


def _load(x: Operand, instance: Instance) -> list[str]:
    name = identifier(x.name)
    if x.by_value:
        return [f"values.{name} = p.{name};"]
    start = _start(x, name)
    if x.kind not in ("row", "tile"):
        read = "beside_index" if _beside_index(x, instance) else "widened"
        return [f"values.{name} = {read}(*{_bracketed(start)});"]
    if is_repeated(x):
        return _load_repeated(x, name, start)
    return [f"load_lanes(values.{name}, {start} + {_lanes_at(x, name, instance.even)});"]


def _load_repeated(x: Operand, name: str, start: str) -> list[str]:
    position, count = POSITION[x.width or 0], lanes(x.width)
    step = f" * p.{name}.column" if x.layout == "strided" else ""
    if x.spanning:
        ahead = position.replace("col", "ahead")
        at = f"{name}_at"
        lines = [
            f"const auto* {at} = {start}",
            f"    + ({_bracketed(position)} & (p.{name}.period - 1)){step};",
        ]
        if x.layout == "vector" and count > 1:
            return [*lines, f"load_lanes(values.{name}, {at} + {ahead});"]
        for i in range(count):
            index = f"({ahead} + {i}){step}" if step else f"{ahead} + {i}"
            lines.append(f"values.{name}[{i}] = widened({at}[{index}]);")
        return lines
    period = f"& (p.{name}.period - 1)" if x.masked else f"% p.{name}.period"
    if x.layout == "vector" and count > 1:
        at = f"{_bracketed(position)} {period}"
        at = f"({at})" if x.masked else at
        return [f"load_lanes(values.{name}, {start} + {at});"]
    lines = []
    for i in range(count):
        at = f"({position} + {i})" if i else _bracketed(position)
        at = f"({at} {period}){step}" if step else f"{at} {period}"
        lines.append(f"values.{name}[{i}] = widened({_bracketed(start)}[{at}]);")
    return lines


def prefetch(instance: Instance, brought: str = "") -> list[str]:
    """Lines that bring tile operands of ``columns`` columns of the product to L2.

    Not those that repeat along the columns, which are small, nor those without adjacent columns.
    """
    lines = []
    for x in used(instance, "tile"):
        if x.name != brought and not is_repeated(x) and x.layout != "strided":
            name = identifier(x.name)
            count = {-1: "columns / 2", 0: "columns", 1: "2 * columns"}[x.width or 0]
            lines.append(f"prefetch({_start(x, name)} + {POSITION[x.width or 0]}, {count});")
    return lines


def _start(x: Operand, name: str) -> str:
    """Address of the first element that a row of this matrix reads."""
    batch = f" + batch * p.{name}.batch" if x.batched else ""
    row = f" + row * p.{name}.row" if x.kind in ("column", "tile") else ""
    return f"p.{name}.data{batch}{row}"


def _lanes_at(x: Operand | TileOutput, name: str, even: bool, values: str = "") -> str:
    """Where the lanes are, the values to store if any, and how to step over which lanes."""
    position = POSITION[x.width or 0]
    if x.layout == "vector":
        return position + values
    valid = str(lanes(x.width)) if even else "valid_lanes(p, col)"
    if x.layout == "unit":
        return f"{position}{values}, 1, {valid}"
    step = f"p.{name}.column"
    return f"{_bracketed(position)} * {step}{values}, {step}, {valid}"


def _bracketed(text: str) -> str:
    return f"({text})" if " " in text else text


def store_tile(x: TileOutput, instance: Instance) -> list[str]:
    """Lines that write the lanes of one output."""
    name = identifier(x.name)
    batch = f"batch * p.{name}.batch + " if instance.batched else ""
    start = f"p.{name}.data + {batch}row * p.{name}.row"
    at = _lanes_at(x, name, instance.even, f", outputs.{name}")
    return [f"store_lanes({start} + {at});"]
