"""The functions an epilogue is written with, beside Python's operators and ``abs``.

All take traced values or numbers, and return a traced value; reductions return an output.
"""

from __future__ import annotations

from typing import Any

from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.lower.epilogue.graph import Node, Reduction, as_node, node
from tiercel.lower.epilogue.rounding import FORMATS


def exp(x: Any) -> Node:
    """``e**x``."""
    return node("exp", x)


def log(x: Any) -> Node:
    """Natural logarithm."""
    return node("log", x)


def tanh(x: Any) -> Node:
    """Hyperbolic tangent."""
    return node("tanh", x)


def erf(x: Any) -> Node:
    """Error function."""
    return node("erf", x)


def normal_cdf(x: Any) -> Node:
    """Distribution function of the normal distribution, ``(1 + erf(x / sqrt(2))) / 2``."""
    return node("normal_cdf", x)


def sigmoid(x: Any) -> Node:
    """``1 / (1 + exp(-x))``."""
    return node("sigmoid", x)


def sqrt(x: Any) -> Node:
    """Square root."""
    return node("sqrt", x)


def rsqrt(x: Any) -> Node:
    """``1 / sqrt(x)``."""
    return node("rsqrt", x)


def maximum(x: Any, y: Any) -> Node:
    """The larger; NaN if either is. Where both are equal, the gradient goes to y."""
    return node("maximum", x, y)


def minimum(x: Any, y: Any) -> Node:
    """The smaller; NaN if either is. Where both are equal, the gradient goes to y."""
    return node("minimum", x, y)


def clip(x: Any, low: Any, high: Any) -> Node:
    """x, but not below ``low`` or above ``high``; at a bound the gradient is that of x."""
    return minimum(high, maximum(low, x))


def where(condition: Any, x: Any, y: Any) -> Node:
    """x where the condition holds, y elsewhere; both are computed."""
    return node("where", condition, x, y)


def cast(x: Any, dtype: str) -> Node:
    """x rounded to ``dtype`` and computed with in float32 again; its gradient is that of x.

    dtypes: "float32", "float16", "bfloat16", "float8_e4m3", "float8_e5m2" (the 8-bit formats
    saturate). An integer operand becomes a number by ``cast(x, "float32")``.
    """
    if dtype not in FORMATS:
        raise TiercelValueError(
            f"cast to {dtype!r} is not known; allowed: {', '.join(map(repr, FORMATS))}"
        )
    return node("cast", x, value=dtype)


def pairs(x: Any) -> tuple[Node, Node]:
    """The even and the odd columns of x (M, N), as two values of N/2 columns."""
    return node("even", x), node("odd", x)


def interleave(even: Any, odd: Any) -> Node:
    """A value of N columns from two of N/2: even ones, odd ones. Undoes `pairs`."""
    return node("interleave", even, odd)


def column_index(like: Any) -> Node:
    """The column, from 0, of each element of a value; for comparisons with numbers or integers."""
    return node("index", like)


def repeat_columns(operand: Any, like: Any) -> Node:
    """An operand of P columns repeated along the W columns of ``like``; P divides W.

    For tables that serve every head of a row: ``cos`` (M, D/2) for an output of H·D columns.
    """
    table = as_node(operand)
    if table.op != "operand":
        raise TiercelTypeError(
            f"repeat_columns takes a parameter of the epilogue itself, not {table!r}; compute with "
            "the repeated value afterwards"
        )
    return node("repeat", table, like)


def row_sum(x: Any) -> Reduction:
    """The sum of each row: an output (M, 1)."""
    return Reduction("sum", "row", as_node(x))


def row_max(x: Any) -> Reduction:
    """The largest element of each row: an output (M, 1). Equal ones all receive the gradient."""
    return Reduction("max", "row", as_node(x))


def row_logsumexp(x: Any) -> Reduction:
    """``log(sum(exp(x)))`` of each row, online and without overflow: an output (M, 1)."""
    return Reduction("logsumexp", "row", as_node(x))


def column_sum(x: Any) -> Reduction:
    """The sum of each column: an output (1, N)."""
    return Reduction("sum", "column", as_node(x))


def column_max(x: Any) -> Reduction:
    """The largest element of each column: an output (1, N). Equal ones all receive the gradient."""
    return Reduction("max", "column", as_node(x))


def pick(x: Any, target: Any) -> Reduction:
    """The element of each row in column ``target``, an integer column operand: an output (M, 1).

    0 for rows whose target is not a column of x.
    """
    x = as_node(x)
    return row_sum(where(column_index(x) == target, x, 0.0))
