"""CUDA C++ for what surrounds the body: parameters, values in registers, loads and stores."""

from __future__ import annotations

from tiercel.lower.epilogue.cuda_body import NEUTRAL, lanes, picked_column
from tiercel.lower.epilogue.cuda_expression import HOLDER
from tiercel.lower.epilogue.cuda_names import identifier, storage, value_type
from tiercel.lower.epilogue.instance import Array, Instance, Operand, Partial, TileOutput

#: Argument of `apply` -> (its struct, what says which elements, what it has).
HOLDERS = {
    "scalars": ("Scalars", "int batch", "the same for a whole matrix"),
    "rows": ("Row", "int batch, int col, int ahead", "one value for each column"),
    "columns": ("Column", "int batch, int row", "one value for each row"),
    "tile": ("Tile", "int batch, int row, int col, int ahead", "one value for each element"),
}

_POSITION = {-1: "col / 2", 0: "col", 1: "2 * col"}


def params(instance: Instance) -> list[str]:
    """Members of ``Params``, in the order of `cuda_params.params_dtype`."""
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


def partial_type(x: Partial) -> str:
    """The C++ type of one partial result."""
    return "LogSumExp" if x.kind == "logsumexp" else "float"


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


def prefetch(instance: Instance, brought: str = "") -> list[str]:
    """Lines that bring tile operands of ``columns`` columns of the product to L2.

    Not those that repeat along the columns, which are small, nor those without adjacent columns.
    """
    lines = []
    for x in used(instance, "tile"):
        if x.name != brought and not is_repeated(x) and x.layout != "strided":
            name = identifier(x.name)
            count = {-1: "columns / 2", 0: "columns", 1: "2 * columns"}[x.width or 0]
            lines.append(f"prefetch({_start(x, name)} + {_POSITION[x.width or 0]}, {count});")
    return lines


def can_be_fours(x: Operand, array: Array) -> bool:
    """Whether four lanes can load a tile operand for each other, 16 bytes at a time."""
    aligned = array.address % 16 == 0 and all(step % 4 == 0 for step in (array.strides or ())[:-1])
    alike = (x.kind, x.dtype, x.width) == ("tile", "float32", -1) and x.layout != "strided"
    return alike and x.repeated and x.spanning and aligned


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


def can_be_eights(x: Operand, array: Array) -> bool:
    """Whether a lane can load an operand of 8 adjacent columns of the product in 16 bytes."""
    halves = (x.dtype in ("bfloat16", "float16"), x.width, x.repeated) == (True, 0, False)
    words = (x.dtype, x.width) == ("float32", -1) and (not x.repeated or x.spanning)
    item = 2 if halves else 4
    steps = (array.strides or ())[:-1]
    aligned = array.address % 16 == 0 and all(item * step % 16 == 0 for step in steps)
    return (halves or words) and x.layout == "vector" and not x.batched and aligned


def period(x: Operand, array: Array) -> int:
    """Columns of the product after which an operand of tiles repeats, 0 if it does not."""
    return int((array.shape or (0,))[-1] / 2.0 ** (x.width or 0)) if is_repeated(x) else 0


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
    at, member = _POSITION[x.width or 0], "[0]" if x.dtype == "float32" else ".word[0]"
    if is_repeated(x):
        at = f"({at} & (p.{name}.period - 1))"
    return [
        f"const {kind} {name} = *reinterpret_cast<const {kind}*>(p.{name}.data{start} + {at});",
        *(f"{pair.format(i)}.{name}{member} = {name}.{lane};" for i, lane in enumerate("xyzw")),
    ]


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


def _load_repeated(x: Operand, name: str, start: str) -> list[str]:
    position, count = _POSITION[x.width or 0], lanes(x.width)
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


def _start(x: Operand, name: str) -> str:
    """Address of the first element that a row of this matrix reads."""
    batch = f" + batch * p.{name}.batch" if x.batched else ""
    row = f" + row * p.{name}.row" if x.kind in ("column", "tile") else ""
    return f"p.{name}.data{batch}{row}"


def _lanes_at(x: Operand | TileOutput, name: str, even: bool, values: str = "") -> str:
    """Where the lanes are, the values to store if any, and how to step over which lanes."""
    position = _POSITION[x.width or 0]
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


def partials(instance: Instance, over: str) -> list[Partial]:
    """The partial results of rows or of columns."""
    return [x for x in instance.partials if x.over == over]


def partial_members(instance: Instance, over: str) -> list[str]:
    """Members of ``RowPartials`` or ``ColumnPartials``, starting as empty results."""
    lines = []
    for x in partials(instance, over):
        name, empty = identifier(x.name), "0.0f" if x.kind == "sum" else "-infinity()"
        if x.kind == "logsumexp":
            lines.append(f"LogSumExp {name};")
        elif over == "row":
            lines.append(f"float {name} = {empty};")
        else:
            lines.append(
                f"float {name}[{lanes(x.width)}] = {{{', '.join([empty] * lanes(x.width))}}};"
            )
    return lines


def row_values(instance: Instance) -> list[str]:
    """Members of ``RowValues``: what one call leaves for each partial result of a row."""
    return [f"float {identifier(x.name)}[{lanes(x.width)}];" for x in partials(instance, "row")]


def nothing(instance: Instance) -> list[str]:
    """Lines that set ``values`` to what changes no partial result of a row."""
    return [
        f"for (float& x : values.{identifier(x.name)}) x = {NEUTRAL[x.kind]};"
        for x in partials(instance, "row")
    ]


def fold(instance: Instance, neighbours: bool = False) -> list[str]:
    """Lines that add ``values``, those of n calls, to ``into``, the partial results of a row."""
    lines = []
    behind = "i / 8 * 32 + i % 8" if neighbours else "i / 2 * 8 + i % 2"
    for x in partials(instance, "row"):
        name, count = identifier(x.name), lanes(x.width)
        lines += [
            f"float {name}[{count} * n];",
            "#pragma unroll",
            f"for (int i = 0; i < {count} * n; ++i)",
            f"  {name}[i] = values[i / {count}].{name}[i % {count}];",
        ]
        if column := picked_column(x, instance):
            at = f"columns.{identifier(column)}"
            lines += [
                f"if (begin <= {at} && {at} < begin + 8 * n) {{  // of hardly any row",
                "#pragma unroll",
                "  for (int i = 0; i < 2 * n; ++i)",
                f"    if (begin + {behind} == {at}) into.{name} += {name}[i];",
                "}",
            ]
            continue
        lines.append(
            {
                "sum": f"into.{name} += sum_of({name});",
                "max": f"into.{name} = maximum(into.{name}, largest_of({name}));",
                "logsumexp": f"tiercel::fold(into.{name}, {name});",
            }[x.kind]
        )
    return lines


def merge(instance: Instance, over: str) -> list[str]:
    """Lines that add the partial results ``other`` to ``into``."""
    lines = []
    for x in partials(instance, over):
        for at in _elements(x):
            into, other = f"into.{at}", f"other.{at}"
            lines.append(
                {
                    "sum": f"{into} += {other};",
                    "max": f"{into} = maximum({into}, {other});",
                    "logsumexp": f"tiercel::merge({into}, {other});",
                }[x.kind]
            )
    return lines


def from_lane(instance: Instance, over: str) -> list[str]:
    """Lines that fill ``other`` with the partial results of another thread of the warp."""
    return [
        f"other.{at} = tiercel::from_lane(x.{at}, mask);"
        for x in partials(instance, over)
        for at in _elements(x)
    ]


def store_partials(instance: Instance, over: str) -> list[str]:
    """Lines that write the partial results of one tile."""
    lines = []
    for x in partials(instance, over):
        name = identifier(x.name)
        if over == "row":
            lines.append(f"store_partial(p.{name}, batch, row, block, partials.{name});")
            continue
        at = f"p.{name}.data + batch * p.{name}.batch + block * p.{name}.row + {_POSITION[x.width]}"
        valid = str(lanes(x.width)) if instance.even else "valid_lanes(p, col)"
        lines.append(f"store_lanes({at}, partials.{name}, 1, {valid});")
    return lines


def load_partials(instance: Instance) -> list[str]:
    """Lines that fill ``partials`` with the partial results of one row and block."""
    names = [identifier(x.name) for x in partials(instance, "row")]
    return [f"partials.{name} = load_partial(p.{name}, batch, row, block);" for name in names]


def store_results(instance: Instance) -> list[str]:
    """Lines that write what a row's partial results come to."""
    names = [(identifier(x.name), x.kind) for x in partials(instance, "row")]
    return [
        f"store_partial(p.{name}_result, batch, row, 0, "
        + (f"finished(partials.{name}));" if kind == "logsumexp" else f"partials.{name});")
        for name, kind in names
    ]


def _elements(x: Partial) -> list[str]:
    name = identifier(x.name)
    return [name] if x.over == "row" else [f"{name}[{i}]" for i in range(lanes(x.width))]
