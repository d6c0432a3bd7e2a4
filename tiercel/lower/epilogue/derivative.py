"""The derivative of an epilogue: reverse accumulation over its graph, giving another epilogue.

A tile-local forward has a tile-local backward, so the derivative fuses into the product that makes
the incoming gradient, exactly as the forward fuses into the product that makes the accumulator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tiercel.errors import TiercelValueError
from tiercel.lower.epilogue.graph import (
    ACC,
    Node,
    Output,
    Reduction,
    node_of,
    operand,
    topological,
)
from tiercel.lower.epilogue.simplify import rebuilt
from tiercel.lower.epilogue.vocabulary import exp, interleave, pairs, where

if TYPE_CHECKING:
    from tiercel.lower.epilogue.trace import Epilogue

Rule = Callable[..., Sequence[Node | None]]

#: Operation -> rule(gradient of the value, the value, arguments) -> gradients of the arguments,
#: None for an argument that has none.
RULES: dict[str, Rule] = {
    "add": lambda d, y, a, b: (d, d),
    "subtract": lambda d, y, a, b: (d, -d),
    "multiply": lambda d, y, a, b: (d * b, d * a),
    "divide": lambda d, y, a, b: (d / b, -(d * y / b)),
    "negative": lambda d, y, a: (-d,),
    "absolute": lambda d, y, a: (where(a > 0, d, where(a < 0, -d, 0.0)),),
    # Where both are equal the second argument takes all: relu'(0) = 0 for maximum(x, 0), and
    # clip, written with x second, passes the gradient on at its bounds; both as torch has it.
    "maximum": lambda d, y, a, b: (where(a > b, d, 0.0), where(a > b, 0.0, d)),
    "minimum": lambda d, y, a, b: (where(a < b, d, 0.0), where(a < b, 0.0, d)),
    "exp": lambda d, y, a: (d * y,),
    "log": lambda d, y, a: (d / a,),
    "tanh": lambda d, y, a: (d * (1.0 - y * y),),
    "erf": lambda d, y, a: (d * (2 / math.sqrt(math.pi) * exp(-(a * a))),),
    "normal_cdf": lambda d, y, a: (d * (1 / math.sqrt(2 * math.pi) * exp(-0.5 * (a * a))),),
    "sigmoid": lambda d, y, a: (d * (y * (1.0 - y)),),
    "sqrt": lambda d, y, a: (0.5 * d / y,),
    "rsqrt": lambda d, y, a: (-0.5 * d * (y * y * y),),
    "where": lambda d, y, condition, a, b: (
        None, where(condition, d, 0.0), where(condition, 0.0, d),
    ),
    "interleave": lambda d, y, even, odd: pairs(d),
    "cast": lambda d, y, a: (d,),  # as if it did not round
}  # fmt: skip


def derivative(
    forward: Epilogue, wrt: Sequence[str] | None = None, recompute: bool = False
) -> Epilogue:
    """The vector-Jacobian product of ``forward`` as an epilogue.

    Its accumulator is the gradient ``d_<name>`` of the first tile output, which the backward
    product makes. If there is no tile output, or with ``recompute``, it is the forward's own
    accumulator, computed once more. Its operands are whatever else the formulas need, by these
    names: the forward's accumulator and operands (as saved), ``d_<name>`` for each other output (a
    tile, or a column or row for reductions), and ``<name>``, the result of a max or logsumexp.

    Its outputs are ``d_<name>`` for the accumulator and the operands in ``wrt``; None: all that
    have a gradient, except settings (operands with a default value or declared scalar) and operands
    of `repeat_columns`. The gradient of a row, column, scalar or per-batch operand is summed to the
    operand's shape.

    Raises ``TiercelValueError`` for names in ``wrt`` that have no gradient.

    >>> from tiercel.epilogues import silu
    >>> print(derivative(silu))
    silu_vjp(d_out, acc)
      t0 = sigmoid(acc)
      d_acc = d_out * t0 + d_out * acc * (t0 * (1 - t0))
    """
    from tiercel.lower.epilogue.trace import assembled

    saved = operand(forward.accumulator)
    outputs = rebuilt(forward.outputs, lambda x: saved if x.op == "acc" else x)
    tiles = [name for name, out in outputs.items() if not isinstance(out, Reduction)]
    accumulator = forward.accumulator if recompute or not tiles else f"d_{tiles[0]}"
    gradients = _gradients(outputs)
    results: dict[str, Output] = {}
    for name in _wanted(forward, wrt, gradients):
        total = gradients[name]
        results[f"d_{name}"] = (
            total if name == forward.accumulator else Reduction("sum", "", total, like=name)
        )
    if accumulator != forward.accumulator:
        results = _like_the_gradient(results, forward, tiles[0])
    results = rebuilt(results, lambda x: ACC if _is_operand(x, accumulator) else x)
    used = _operands(results)
    order = [
        forward.accumulator,
        *forward.parameters,
        *outputs,
        *(f"d_{name}" for name in outputs),
    ]
    return assembled(
        f"{forward.name}_vjp",
        accumulator,
        tuple(name for name in order if name in used and name != accumulator),
        results,
        {name: value for name, value in forward.defaults.items() if name in used},
        {name: kind for name, kind in forward.pinned.items() if name in used},
        f"Derivative of {forward.name}.",
    )


def _gradients(outputs: dict[str, Output]) -> dict[str, Node]:
    """The gradient of every operand that has one."""
    gradient: dict[Node, Node] = {}
    halves: dict[Node, dict[str, Node]] = {}  # of a value, from its even and its odd columns

    def add(x: Node, d: Node | None) -> None:
        if d is not None:
            gradient[x] = gradient[x] + d if x in gradient else d

    for name, out in outputs.items():
        add(node_of(out), _seed(name, out))
    found: dict[str, Node] = {}
    for x in reversed(topological([node_of(out) for out in outputs.values()])):
        if x in halves:
            add(x, interleave(halves[x].get("even", 0.0), halves[x].get("odd", 0.0)))
        d = gradient.get(x)
        if d is None:
            continue
        if x.op == "operand":
            found[x.value] = d
        elif x.op in ("even", "odd"):
            halves.setdefault(x.args[0], {})[x.op] = d
        elif x.op in RULES:
            for arg, contribution in zip(x.args, RULES[x.op](d, x, *x.args), strict=True):
                if arg.op != "constant":
                    add(arg, contribution)
    return found


def _seed(name: str, out: Output) -> Node:
    """The gradient that an output's own gradient makes of the value it stores or reduces."""
    d = operand(f"d_{name}")
    if not isinstance(out, Reduction) or out.kind == "sum":
        return d
    if out.kind == "max":
        return where(out.of == operand(name), d, 0.0)
    return d * exp(out.of - operand(name))


def _wanted(forward: Epilogue, wrt: Sequence[str] | None, gradients: dict[str, Node]) -> list[str]:
    everything = [forward.accumulator, *forward.parameters]
    if wrt is None:
        scalars = {x for x, kind in forward.pinned.items() if kind == "scalar"}
        settings = scalars | set(forward.defaults)
        return [x for x in everything if x in gradients and x not in settings]
    for name in wrt:
        if name not in gradients:
            have = ", ".join(x for x in everything if x in gradients) or "none"
            raise TiercelValueError(
                f"{forward.name} has no gradient for {name!r}; allowed: {have} (not integers, "
                "conditions and operands of repeat_columns)"
            )
    return [x for x in everything if x in wrt]


def _operands(outputs: dict[str, Output]) -> set[str]:
    nodes = topological([node_of(out) for out in outputs.values()])
    likes = {out.like for out in outputs.values() if isinstance(out, Reduction) and out.like}
    return likes | {x.value for x in nodes if x.op == "operand"}


def _like_the_gradient(
    results: dict[str, Output], forward: Epilogue, name: str
) -> dict[str, Output]:
    """Results in which `repeat` and `index` take their width from ``d_<name>``, where they can.

    The forward's accumulator is then no operand of the derivative only because of its width.
    """
    made = _levels(node_of(forward.outputs[name]), ACC)

    def change(x: Node) -> Node:
        level = _levels(x.args[-1], operand(forward.accumulator)) if x.op in _LIKE else None
        if level is None or made is None:
            return x
        like = operand(f"d_{name}")
        for _ in range(made, level):
            like = interleave(like, like)
        for _ in range(level, made):
            like, _odd = pairs(like)
        return Node(x.op, (*x.args[:-1], like), x.value)

    return rebuilt(results, change)


_LIKE = ("repeat", "index")


def _levels(x: Node, origin: Node) -> int | None:
    """How much wider x is than ``origin``, as a base-2 logarithm; None if x does not read it."""
    level: dict[Node, int | None] = {}
    for y in topological([x]):
        step = {"even": -1, "odd": -1, "interleave": 1}.get(y.op, 0)
        below = (level[arg] for arg in y.args)
        same = (y.op, y.value) == (origin.op, origin.value)
        level[y] = 0 if same else next((found + step for found in below if found is not None), None)
    return level[x]


def _is_operand(x: Node, name: str) -> bool:
    return x.op == "operand" and x.value == name
