"""Rewriting a traced graph: equal expressions become one node, and what does nothing goes.

Identities that change a finite result, a NaN or an infinity are left out: ``x * 0`` stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from tiercel.lower.epilogue.graph import (
    Node,
    Output,
    Reduction,
    constant,
    node_of,
    topological,
)
from tiercel.lower.epilogue.operations import OPERATIONS


def simplified(outputs: Mapping[str, Output]) -> dict[str, Output]:
    """The same outputs with shared subexpressions merged, constants folded, identities removed."""
    merged: dict[tuple[str, tuple[int, ...], str], Node] = {}

    def merge(x: Node) -> Node:
        x = _reduced(x)
        args = [id(arg) for arg in x.args]
        if x.op in ("add", "multiply"):  # a + b is b + a, to the last bit
            args.sort()
        return merged.setdefault((x.op, tuple(args), repr(x.value)), x)

    return rebuilt(outputs, merge)


def rebuilt(
    outputs: Mapping[str, Output],
    change: Callable[[Node], Node],
    known: Mapping[Node, Node] | None = None,
) -> dict[str, Output]:
    """Outputs whose nodes went through ``change``, arguments first; ``known`` ones are replaced."""
    new = dict(known or {})
    for x in topological([node_of(out) for out in outputs.values()]):
        if x not in new:
            args = tuple(new[arg] for arg in x.args)
            # The same objects again, where nothing below has changed.
            same = all(a is b for a, b in zip(args, x.args, strict=True))
            new[x] = change(x if same else Node(x.op, args, x.value))
    return {
        name: replace(out, of=new[out.of]) if isinstance(out, Reduction) else new[out]
        for name, out in outputs.items()
    }


def _reduced(x: Node) -> Node:
    """x, or a simpler node of the same value."""
    args = x.args
    if x.op in OPERATIONS and args and all(arg.op == "constant" for arg in args):
        return _folded(x)
    if x.op in ("even", "odd") and args[0].op == "interleave":
        return args[0].args[0 if x.op == "even" else 1]
    if x.op == "interleave" and args[0].op == "even" and args[1].op == "odd":
        source = args[0].args[0]
        if source is args[1].args[0]:
            return source
    if x.op == "cast" and args[0].op == "cast" and args[0].value == x.value:
        return args[0]
    if x.op == "negative" and args[0].op == "negative":
        return args[0].args[0]
    if x.op == "where" and args[1] is args[2]:
        return args[1]
    if x.op in ("add", "multiply"):
        neutral = 0.0 if x.op == "add" else 1.0
        if _is(args[0], neutral):
            return args[1]
        if _is(args[1], neutral):
            return args[0]
    if x.op == "subtract" and _is(args[1], 0.0):
        return args[0]
    if x.op == "divide" and _is(args[1], 1.0):
        return args[0]
    return x


def _folded(x: Node) -> Node:
    from tiercel.lower.epilogue.reference import NUMPY

    with np.errstate(all="ignore"):
        value = NUMPY[x.op](*(np.float64(arg.value) for arg in x.args))
    return x if OPERATIONS[x.op].gives == "bool" else constant(float(value))


def _is(x: Node, value: float) -> bool:
    return x.op == "constant" and x.value == value
