"""The width and type of every node, from those of the operands: an epilogue's type check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.lower.epilogue.graph import Node, node_of, topological
from tiercel.lower.epilogue.kinds import Place
from tiercel.lower.epilogue.operations import OPERATIONS, Type
from tiercel.lower.epilogue.text import one_line

if TYPE_CHECKING:
    from tiercel.lower.epilogue.trace import Epilogue

Width = int | None  # None: the same in every column

_COLUMNS = {-1: "N/2", 0: "N", 1: "2N"}


def settle(
    epilogue: Epilogue, places: Mapping[str, Place], integers: set[str]
) -> tuple[dict[Node, Width], dict[Node, Type]]:
    """``(width, type)`` of every node; ``integers`` are the operands of an integer dtype.

    Raises ``TiercelValueError`` where values of different widths meet, ``TiercelTypeError`` where a
    condition, an integer or a number stands in another's place.
    """
    width: dict[Node, Width] = {}
    types: dict[Node, Type] = {}
    for x in topological([node_of(out) for out in epilogue.outputs.values()]):
        width[x] = _width(x, width, places)
        types[x] = _type(x, types, integers)
    for name, out in epilogue.outputs.items():
        if types[node_of(out)] != "float":
            raise TiercelTypeError(
                f"output {name!r} of the epilogue {epilogue.name!r} is a {types[node_of(out)]} "
                f"({one_line(node_of(out))}); outputs are numbers: use where(condition, 1, 0), or "
                'cast(x, "float32") for an integer'
            )
    return width, types


def _width(x: Node, width: dict[Node, Width], places: Mapping[str, Place]) -> Width:
    if x.op == "acc":
        return 0
    if x.op == "operand":
        return places[x.value].width
    if x.op == "repeat":
        table, like = x.args
        return width[like] if places[table.value].kind in ("row", "tile") else None
    if x.op == "index":
        return width[x.args[0]]
    if x.op in ("even", "odd"):
        return _halved(x, width[x.args[0]])
    joined = _joined(x, width)
    return _doubled(x, joined) if x.op == "interleave" else joined


def _joined(x: Node, width: dict[Node, Width]) -> Width:
    found = [width[arg] for arg in x.args if width[arg] is not None]
    if len(set(found)) > 1:
        sides = " and ".join(
            f"{one_line(arg)} ({_COLUMNS[wide]} columns)"
            for arg in x.args
            if (wide := width[arg]) is not None
        )
        raise TiercelValueError(
            f"{x.op} of values of different widths: {sides}, where N is the width of the "
            "accumulator; pass an operand with as many columns, or use pairs and interleave"
        )
    return found[0] if found else None


def _halved(x: Node, wide: Width) -> Width:
    if wide is None or wide == -1:
        what = "the same in every column" if wide is None else "N/2 columns wide already"
        raise TiercelValueError(
            f"pairs({one_line(x.args[0])}): the value is {what}; allowed: values of N or 2N columns"
        )
    return wide - 1


def _doubled(x: Node, wide: Width) -> Width:
    if wide is None or wide == 1:
        what = "the same in every column" if wide is None else "2N columns wide already"
        raise TiercelValueError(
            f"{one_line(x)}: the values are {what}; allowed: values of N/2 or N columns"
        )
    return wide + 1


def _type(x: Node, types: dict[Node, Type], integers: set[str]) -> Type:
    if x.op == "operand":
        return "int" if x.value in integers else "float"
    if x.op == "index":
        return "int"
    if x.op in ("acc", "constant"):
        return "float"
    given: list[Type] = [types[arg] for arg in x.args]
    if x.op in ("even", "odd", "repeat"):
        return given[0]
    if x.op == "interleave":
        _require(x, given, ("float",))
        return "float"
    if x.op == "cast":
        _require(x, given, ("float", "int"))
        return "float"
    operation = OPERATIONS[x.op]
    if operation.takes == "choice":
        _require(x, given[:1], ("bool",))
        _require(x, given[1:], ("float",))
    elif operation.takes == "number":
        _require(x, given, ("float", "int"))
    else:
        _require(x, given, (operation.takes,))
    return operation.gives


def _require(x: Node, given: Sequence[Type], allowed: Sequence[Type]) -> None:
    for found in given:
        if found not in allowed:
            raise TiercelTypeError(
                f"{x.op} in {one_line(x)} takes {' or '.join(allowed)}, not {found}; a condition "
                'is made by a comparison, a number of an integer by cast(x, "float32")'
            )
