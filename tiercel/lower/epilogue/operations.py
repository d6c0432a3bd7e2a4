"""The element-wise operations of an epilogue: what they take and give, and how they print.

What an operation computes is said once per lowering: in NumPy (``reference.py``), in CUDA C++
(``prelude.cuh``) and as a derivative (``derivative.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Type = Literal["float", "int", "bool"]

#: How tightly an expression binds, as in C: an argument that binds less needs parentheses.
ATOM, UNARY, PRODUCT, SUM, COMPARISON, AND, OR, CHOICE = 9, 8, 7, 6, 5, 4, 3, 2


@dataclass(frozen=True)
class Operation:
    """An element-wise operation.

    ``takes``: "float" (numbers, no booleans; integers are refused), "number" (floats and
    integers), "bool", or "choice" (a boolean, then two floats). ``symbol``: how an infix or
    prefix operation is written; "" for functions.
    """

    takes: Literal["float", "number", "bool", "choice"] = "float"
    gives: Type = "float"
    symbol: str = ""
    binds: int = ATOM


OPERATIONS: dict[str, Operation] = {
    "add": Operation(symbol="+", binds=SUM),
    "subtract": Operation(symbol="-", binds=SUM),
    "multiply": Operation(symbol="*", binds=PRODUCT),
    "divide": Operation(symbol="/", binds=PRODUCT),
    "negative": Operation(symbol="-", binds=UNARY),
    "absolute": Operation(),
    "maximum": Operation(),
    "minimum": Operation(),
    "exp": Operation(),
    "log": Operation(),
    "tanh": Operation(),
    "erf": Operation(),
    "normal_cdf": Operation(),
    "sigmoid": Operation(),
    "sqrt": Operation(),
    "rsqrt": Operation(),
    "less": Operation("number", "bool", "<", COMPARISON),
    "less_equal": Operation("number", "bool", "<=", COMPARISON),
    "greater": Operation("number", "bool", ">", COMPARISON),
    "greater_equal": Operation("number", "bool", ">=", COMPARISON),
    "equal": Operation("number", "bool", "==", COMPARISON),
    "not_equal": Operation("number", "bool", "!=", COMPARISON),
    "logical_and": Operation("bool", "bool", "&&", AND),
    "logical_or": Operation("bool", "bool", "||", OR),
    "logical_not": Operation("bool", "bool", "!", UNARY),
    "where": Operation("choice"),
}


def infix(symbol: str, binds: int, args: list[tuple[str, int]]) -> str:
    """``a + b`` or ``-a`` from printed arguments and how tightly they bind.

    The order of operations is kept as traced: a right argument that binds equally is bracketed,
    for ``a - (b - c)`` and because ``a + (b + c)`` rounds differently from ``a + b + c``.
    Comparisons are bracketed on both sides, ``-`` after ``-`` always.
    """

    def bracketed(text: str, level: int, least: int) -> str:
        return text if level > least else f"({text})"

    if len(args) == 1:
        return symbol + bracketed(*args[0], UNARY)
    (left, left_binds), (right, right_binds) = args
    loose = binds if binds == COMPARISON else binds - 1
    return f"{bracketed(left, left_binds, loose)} {symbol} {bracketed(right, right_binds, binds)}"
