"""CUDA C++ for reductions: partial results of a tile's rows and columns, folded, merged, stored."""

from __future__ import annotations

from tiercel.lower.epilogue.cuda.body import NEUTRAL, lanes, picked_column
from tiercel.lower.epilogue.cuda.names import POSITION, identifier
from tiercel.lower.epilogue.instance import Instance, Partial


def partials(instance: Instance, over: str) -> list[Partial]:
    """The partial results of rows or of columns."""
    return [x for x in instance.partials if x.over == over]


def partial_type(x: Partial) -> str:
    """The C++ type of one partial result."""
    return "LogSumExp" if x.kind == "logsumexp" else "float"


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
        at = f"p.{name}.data + batch * p.{name}.batch + block * p.{name}.row + {POSITION[x.width]}"
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
