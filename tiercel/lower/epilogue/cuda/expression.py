"""CUDA C++ for one node: an expression in the registers that a call of the epilogue holds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tiercel.lower.epilogue.cuda.names import identifier, storage
from tiercel.lower.epilogue.graph import Node
from tiercel.lower.epilogue.instance import DTYPES, Instance
from tiercel.lower.epilogue.operations import (
    ATOM,
    CHOICE,
    COMPARISON,
    OPERATIONS,
    SUM,
    UNARY,
    infix,
)

#: Operations that are calls -> the function; `prelude.cuh` has those that CUDA C++ lacks.
#: What the user asks for by name is accurate (expf, logf, ...); what only feeds an activation
#: (sigmoid, normal_cdf) is fast.
CALLS = {
    "absolute": "fabsf", "maximum": "maximum", "minimum": "minimum", "exp": "expf", "log": "logf",
    "tanh": "tanhf", "erf": "erff", "normal_cdf": "normal_cdf", "sigmoid": "sigmoid",
    "sqrt": "sqrtf", "rsqrt": "rsqrtf",
}  # fmt: skip

#: What takes their place where every output is rounded to 16 bits or fewer, and where it is rounded
#: to the 8 significant bits of bfloat16 or fewer.
SHORT_CALLS = {"normal_cdf": "normal_cdf16"}
SHORTEST_CALLS = {"normal_cdf": "normal_cdf8"}

#: Comparisons of an index with a number -> what is an integer, and to be compared with instead.
_ROUNDED = {
    "less": "first_from", "greater_equal": "first_from",
    "less_equal": "last_up_to", "greater": "last_up_to",
}  # fmt: skip

#: Kind of operand -> the argument of `apply` that holds its values.
HOLDER = {
    "tile": "tile", "row": "rows", "column": "columns", "scalar": "scalars", "batch": "scalars",
}  # fmt: skip

_WIDE = ("row", "tile")


@dataclass(frozen=True)
class Index:
    """Lane ``step · i + start`` of an array, i being the variable of the loop."""

    step: int
    start: int

    def of(self, lane: int) -> Index:
        """The index of lane 0 or 1 of each pair."""
        return Index(2 * self.step, 2 * self.start + lane)

    def __str__(self) -> str:
        if self.step == 0:
            return str(self.start)
        stepped = "i" if self.step == 1 else f"{self.step} * i"
        return f"{stepped} + {self.start}" if self.start else stepped


@dataclass(frozen=True)
class Named:
    """A value that has a variable; ``indexed``: an array with one element for each lane."""

    name: str
    indexed: bool


def expression(
    x: Node, index: Index, instance: Instance, names: Mapping[Node, Named], inside: bool = False
) -> tuple[str, int]:
    """``(text, how tightly it binds)`` of lane ``index`` of x; ``inside``: of x, not its name."""
    if x in names and not inside:
        named = names[x]
        return (f"{named.name}[{index}]" if named.indexed else named.name), ATOM
    if x.op == "acc":
        return f"acc[{index}]", ATOM
    if x.op in ("operand", "repeat"):
        return _operand(x.value or x.args[0].value, index, instance), ATOM
    if x.op == "constant":
        return number(x.value), ATOM
    if x.op == "index":
        return _column(instance.width[x.args[0]], index), SUM
    if x.op in ("even", "odd"):
        return expression(x.args[0], index.of(int(x.op == "odd")), instance, names)
    args = [expression(arg, index, instance, names) for arg in x.args]
    if x.op == "cast":
        return _cast(x, args[0][0], instance), ATOM
    if x.op == "where":
        return " ".join(_choice(args)), CHOICE
    operation = OPERATIONS[x.op]
    if not operation.symbol:
        return f"{_call(x.op, instance)}({', '.join(text for text, _ in args)})", ATOM
    if operation.binds == COMPARISON:
        args = _compared(x, args, instance)
    return infix(operation.symbol, operation.binds, args), operation.binds


def _call(op: str, instance: Instance) -> str:
    """The function that computes ``op``: a shorter one where the results are rounded that much."""
    if instance.partials or any(DTYPES[x.dtype] > 2 for x in instance.outputs):
        return CALLS[op]
    fine = any(x.dtype == "float16" for x in instance.outputs)
    return (SHORT_CALLS if fine else SHORTEST_CALLS).get(op, CALLS[op])


def number(value: float) -> str:
    """A float literal that has the float32 nearest to ``value``.

    >>> number(1), number(1e-6), number(-0.044715), number(math.inf)
    ('1.0f', '1e-06f', '-0.044715f', 'infinity()')
    """
    if math.isnan(value):
        return "__int_as_float(0x7fc00000)"
    with np.errstate(over="ignore"):
        single = np.float32(value)
    if np.isinf(single):
        return "infinity()" if single > 0 else "-infinity()"
    return f"{single!s}f"


def _operand(name: str, index: Index, instance: Instance) -> str:
    operand = instance.operand(name)
    element = f"{HOLDER[operand.kind]}.{identifier(name)}"
    return f"{element}[{index}]" if operand.kind in _WIDE else element


def _column(width: int | None, index: Index) -> str:
    base = {-1: "col / 2", 0: "col", 1: "2 * col", None: "col"}[width]
    return base if str(index) == "0" else f"{base} + {index}"


def _cast(x: Node, text: str, instance: Instance) -> str:
    if instance.type[x.args[0]] == "int":
        text = f"static_cast<float>({text})"
    if x.value == "float32":
        return text if text.startswith("static_cast") else f"({text})"
    return f"rounded<{storage(x.value)}>({text})"


def _choice(args: list[tuple[str, int]]) -> tuple[str, ...]:
    condition, yes, no = (text if binds > CHOICE else f"({text})" for text, binds in args)
    return condition, "?", yes, ":", no


def _compared(x: Node, args: list[tuple[str, int]], instance: Instance) -> list[tuple[str, int]]:
    """Arguments of a comparison: a number beside an integer is written as an integer."""
    integer = any(instance.type[arg] == "int" for arg in x.args)
    index, bound = x.args
    is_float = bound.op == "operand" and instance.type[bound] == "float"
    if index.op == "index" and is_float and instance.width[bound] is None and x.op in _ROUNDED:
        return [args[0], (f"{_ROUNDED[x.op]}({args[1][0]})", ATOM)]
    return [
        (str(int(arg.value)), UNARY)
        if integer and arg.op == "constant" and float(arg.value).is_integer()
        else printed
        for arg, printed in zip(x.args, args, strict=True)
    ]
