"""A route: the moves of the accumulator before slots, scales and planes are settled.

A route says which product or saved value joins the accumulator next. What must be saved follows
from the loads: a value that is loaded later is saved the last time the accumulator holds it before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tiercel.lower.accumulator.sums import Sums, Value


@dataclass(frozen=True)
class AddProduct:
    """acc (=|+=) product r; the result is a partial sum of ``output``."""

    product: int
    clear: bool
    output: int


@dataclass(frozen=True)
class AddValue:
    """acc (=|+=) a value held before; the result is a partial sum of ``output``."""

    value: Value
    clear: bool
    output: int


@dataclass(frozen=True)
class TakeValue:
    """acc −= a value held before, part of the sum of ``output`` that the accumulator holds."""

    value: Value
    output: int


@dataclass(frozen=True)
class Finish:
    """The accumulator holds the whole of ``output``: store it."""

    output: int


Move = AddProduct | AddValue | TakeValue | Finish
Route = tuple[Move, ...]


def holdings(sums: Sums, route: Route, start: Value = (0, 0)) -> Iterator[Value]:
    """What the accumulator holds after each move; ``start``: before the first."""
    acc = start
    for move in route:
        match move:
            case AddProduct(product, clear, output):
                acc = sums.value(output, 1 << product | (0 if clear else acc[1]))
            case AddValue(value, clear, output):
                acc = sums.value(output, value[1] | (0 if clear else acc[1]))
            case TakeValue(value, output):
                acc = sums.value(output, acc[1] & ~value[1])
            case Finish():
                pass
        yield acc


def clears(move: Move) -> bool:
    """Whether a move overwrites the accumulator."""
    return isinstance(move, (AddProduct, AddValue)) and move.clear
