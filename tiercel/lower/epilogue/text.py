"""An epilogue as text: one line per shared value and output, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tiercel.lower.epilogue.graph import Node, Output, Reduction, node_of, topological
from tiercel.lower.epilogue.operations import ATOM, OPERATIONS, infix

if TYPE_CHECKING:
    from tiercel.lower.epilogue.instance import Instance
    from tiercel.lower.epilogue.trace import Epilogue

_SYMBOLS = {"&&": "&", "||": "|", "!": "~"}
#: Of an expression in a message: characters, and levels (a value may be shared many times over).
_LONGEST, _DEEPEST = 60, 6
_LEAVES = ("acc", "operand", "constant")
_COLUMNS = {-1: "N/2", 0: "N", 1: "2N"}


def one_line(x: Node, accumulator: str = "acc") -> str:
    """The expression of a node, cut after 60 characters."""
    text, _ = _expression(x, {}, accumulator, depth=_DEEPEST)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def describe(epilogue: Epilogue, instance: Instance | None = None) -> str:
    """The signature, every value that is used more than once, and the outputs.

    With an instance, kinds, shapes and dtypes too.

    >>> from tiercel.lower.epilogue.library import silu
    >>> print(describe(silu))
    silu(acc)
      out = acc * sigmoid(acc)
    """
    lines = [_signature(epilogue, instance)]
    names: dict[Node, str] = {}
    for x in topological([node_of(out) for out in epilogue.outputs.values()]):
        if _uses(epilogue)[x] > 1 and x.op not in _LEAVES and not _is_pair_of_leaf(x):
            names[x] = f"t{len(names)}"
            text, _ = _expression(x, names, epilogue.accumulator, inside=True)
            lines.append(f"  {names[x]} = {text}")
    for name, out in epilogue.outputs.items():
        text, _ = _expression(node_of(out), names, epilogue.accumulator)
        lines.append(f"  {name}{_shape_of(name, instance)} = {_reduced(out, text)}")
    return "\n".join(lines)


def _signature(epilogue: Epilogue, instance: Instance | None) -> str:
    if instance is None:
        given = [
            f"{name}={epilogue.defaults[name]:g}" if name in epilogue.defaults else name
            for name in epilogue.parameters
        ]
    else:
        given = [
            f"{x.name}: {x.kind}{_width(x.width)} {x.dtype}" + (", by value" if x.by_value else "")
            for x in instance.operands
        ]
    return f"{epilogue.name}({', '.join([epilogue.accumulator, *given])})"


def _width(width: int | None) -> str:
    return "" if width in (None, 0) else f" of {_COLUMNS[width]} columns"


def _shape_of(name: str, instance: Instance | None) -> str:
    if instance is None:
        return ""
    for x in instance.outputs:
        if x.name == name:
            return f" (M, {_COLUMNS[x.width]}) {x.dtype}"
    partial = next(x for x in instance.partials if x.name == name)
    shapes = {"row": "(M, 1)", "column": f"(1, {_COLUMNS[partial.width]})"}
    return f" {shapes[partial.over]} float32, one per tile"


def _reduced(out: Output, text: str) -> str:
    if not isinstance(out, Reduction):
        return text
    return f"sum_to({out.like}, {text})" if out.like else f"{out.over}_{out.kind}({text})"


def _uses(epilogue: Epilogue) -> dict[Node, int]:
    roots = [node_of(out) for out in epilogue.outputs.values()]
    uses = dict.fromkeys(topological(roots), 0)
    for x in [*roots, *(arg for node in uses for arg in node.read)]:
        uses[x] += 1
    return uses


def _is_pair_of_leaf(x: Node) -> bool:
    return x.op in ("even", "odd", "repeat", "index") and x.args[0].op in _LEAVES


def _expression(
    x: Node,
    names: Mapping[Node, str],
    accumulator: str,
    inside: bool = False,
    depth: int = 1000,
) -> tuple[str, int]:
    """``(text, how tightly it binds)``; ``inside``: of x itself, not its name."""
    if x in names and not inside:
        return names[x], ATOM
    if x.op == "acc":
        return accumulator, ATOM
    if x.op == "operand":
        return x.value, ATOM
    if x.op == "constant":
        return f"{x.value:.7g}", ATOM
    if depth == 0:
        return "…", ATOM
    args = [_expression(arg, names, accumulator, depth=depth - 1) for arg in x.args]
    operation = OPERATIONS.get(x.op)
    if operation is not None and operation.symbol:
        symbol = _SYMBOLS.get(operation.symbol, operation.symbol)
        return infix(symbol, operation.binds, args), operation.binds
    listed = [text for text, _ in args]
    if x.op == "repeat":
        listed = [listed[0]]
    if x.op == "cast":
        listed.append(x.value)
    return f"{x.op}({', '.join(listed)})", ATOM
