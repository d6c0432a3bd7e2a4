"""The expression graph of an epilogue: what tracing records, and what every lowering reads.

A `Node` is one value for every element of a product's tile. Python's operators on nodes make
nodes; a `Reduction` ends an expression and is only ever an output.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

from tiercel.errors import TiercelTypeError, TiercelValueError


@dataclass(frozen=True, eq=False, repr=False)  # compared by identity; == is an operation
class Node:
    """One operation on other nodes; ``value`` is what it needs beside them.

    Leaves are ``acc``, ``operand`` (value: its name) and ``constant`` (value: a float). ``index``
    is the column of each element of its argument; ``even``, ``odd`` and ``interleave`` are the
    maps of adjacent columns; ``repeat`` is an operand repeated along the columns of its second
    argument; ``cast`` rounds to the dtype ``value``. The rest are in ``operations.py``.
    """

    op: str
    args: tuple[Node, ...] = ()
    value: Any = None

    @property
    def read(self) -> tuple[Node, ...]:
        """The arguments whose values are used; of others only the width matters."""
        return {"index": (), "repeat": self.args[:1]}.get(self.op, self.args)

    def __repr__(self) -> str:
        from tiercel.lower.epilogue.text import one_line

        return f"<traced {one_line(self)}>"

    def __add__(self, other: Any) -> Node:
        return node("add", self, other)

    def __radd__(self, other: Any) -> Node:
        return node("add", other, self)

    def __sub__(self, other: Any) -> Node:
        return node("subtract", self, other)

    def __rsub__(self, other: Any) -> Node:
        return node("subtract", other, self)

    def __mul__(self, other: Any) -> Node:
        return node("multiply", self, other)

    def __rmul__(self, other: Any) -> Node:
        return node("multiply", other, self)

    def __truediv__(self, other: Any) -> Node:
        return node("divide", self, other)

    def __rtruediv__(self, other: Any) -> Node:
        return node("divide", other, self)

    def __neg__(self) -> Node:
        return node("negative", self)

    def __abs__(self) -> Node:
        return node("absolute", self)

    def __pow__(self, exponent: Any) -> Node:
        if isinstance(exponent, Node) or exponent not in (1, 2, 3, 4):
            raise TiercelValueError(
                f"a traced value cannot be raised to {exponent!r}; allowed: 1, 2, 3 and 4; write "
                "sqrt(x), rsqrt(x), 1 / x or exp(y * log(x)) for others"
            )
        square = self * self
        return (self, square, square * self, square * square)[int(exponent) - 1]

    def __lt__(self, other: Any) -> Node:
        return node("less", self, other)

    def __le__(self, other: Any) -> Node:
        return node("less_equal", self, other)

    def __gt__(self, other: Any) -> Node:
        return node("greater", self, other)

    def __ge__(self, other: Any) -> Node:
        return node("greater_equal", self, other)

    def __eq__(self, other: Any) -> Node:  # type: ignore[override]
        return node("equal", self, other)

    def __ne__(self, other: Any) -> Node:  # type: ignore[override]
        return node("not_equal", self, other)

    def __and__(self, other: Any) -> Node:
        return node("logical_and", self, other)

    def __or__(self, other: Any) -> Node:
        return node("logical_or", self, other)

    def __invert__(self) -> Node:
        return node("logical_not", self)

    # Identity again: dictionaries keyed by nodes find a node without asking ``==``.
    __hash__ = object.__hash__

    # NumPy then leaves ``np.float32(2) * x`` to the operators above and refuses ``np.exp(x)``.
    __array_ufunc__ = None

    def __bool__(self) -> bool:
        raise TiercelTypeError(
            "a traced value has no truth value: it stands for every element of the tile. Use "
            "where(condition, x, y) for `if`, and & | ~ for `and`, `or`, `not`"
        )


@dataclass(frozen=True, eq=False)
class Reduction:
    """The rows or columns of a value reduced to one number each; only ever an output.

    ``kind``: "sum", "max" or "logsumexp". ``over``: "row" makes one number of each row, (M, 1);
    "column" one of each column, (1, N). ``like`` names an operand instead: the sum over every
    axis along which that operand is constant (``over`` is then "").
    """

    kind: Literal["sum", "max", "logsumexp"]
    over: Literal["row", "column", ""]
    of: Node
    like: str = ""


Output = Node | Reduction

ACC = Node("acc")


def constant(value: float) -> Node:
    """A number known when the epilogue is traced."""
    return Node("constant", value=float(value))


def operand(name: str) -> Node:
    """The parameter ``name`` of the epilogue."""
    return Node("operand", value=name)


def as_node(x: Any) -> Node:
    """x as a node: numbers become constants.

    Raises ``TiercelTypeError`` for reductions, arrays and everything else.
    """
    if isinstance(x, Node):
        return x
    if isinstance(x, Real) and not isinstance(x, bool):
        return constant(float(x))
    if isinstance(x, Reduction):
        raise TiercelTypeError(
            f"the {x.kind} of a {x.over} is known only when all tiles are done, so the same "
            "epilogue cannot use it; return it as an output and pass it to the next product as a "
            "column or row operand"
        )
    raise TiercelTypeError(
        f"an epilogue cannot use a {type(x).__name__}; allowed: traced values and numbers. Arrays "
        "enter as parameters of the function"
    )


def node(op: str, *args: Any, value: Any = None) -> Node:
    """The node of an operation on nodes and numbers."""
    return Node(op, tuple(as_node(x) for x in args), value)


def node_of(output: Output) -> Node:
    """The value that an output stores or reduces."""
    return output.of if isinstance(output, Reduction) else output


def topological(roots: list[Node], read_only: bool = False) -> list[Node]:
    """Every node below ``roots``, each once, arguments first; or only those whose value is read."""
    order: dict[Node, None] = {}
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        current, done = stack.pop()
        if current in order:
            continue
        if done:
            order[current] = None
            continue
        stack.append((current, True))
        below = current.read if read_only else current.args
        stack.extend((x, False) for x in reversed(below) if x not in order)
    return list(order)
