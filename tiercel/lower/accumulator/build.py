"""Route → program: signs and scales go into planes, loads and stores; values into slots."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from tiercel.lower.accumulator.cost import Cost
from tiercel.lower.accumulator.program import (
    AccumulatorProgram,
    Load,
    Multiply,
    Plane,
    Save,
    Step,
    Store,
)
from tiercel.lower.accumulator.route import (
    AddProduct,
    AddValue,
    Finish,
    Move,
    Route,
    TakeValue,
    clears,
)
from tiercel.lower.accumulator.slots import saved_values, slots
from tiercel.lower.accumulator.sums import Sums, Value, members, sums_of

if TYPE_CHECKING:
    from tiercel.schemes import Scheme

Row = tuple[Fraction, ...]
Sum = dict[int, Fraction]  # coefficient of each product


class Moment(NamedTuple):
    """A move, its place in the route, the accumulator after it, and the sum it reads a scale off.

    The latter is the accumulator *before* a value is taken from it: afterwards it has none of it.
    """

    at: int
    move: Move
    acc: Sum
    whole: Sum


def build(scheme: Scheme, route: Route, cost: Cost) -> AccumulatorProgram:
    """The program of a route for a *normalised* scheme (sums that lead with +1).

    Between two clears everything in the accumulator carries one common factor. It is chosen per
    such segment so that products of two plain blocks need no sign, for their planes are read in
    place; then so that stores and loads need no scale. Other products fold their coefficient into
    whichever plane has to be written anyway.
    """
    writer = _Writer(scheme, sums_of(scheme), route, cost)
    starts = [i for i, move in enumerate(route) if clears(move)]
    for start, stop in pairwise([*starts, len(route)]):
        writer.segment(start, stop)
    m, k, n = scheme.grid
    a, b = (tuple(map(_plane, rows)) for rows in (writer.a, writer.b))
    return AccumulatorProgram(scheme.name, m, k, n, a, b, tuple(writer.steps))


@dataclass
class _Writer:
    scheme: Scheme
    sums: Sums
    route: Route
    cost: Cost
    a: dict[Row, int] = field(default_factory=dict)  # planes so far, with their numbers
    b: dict[Row, int] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        saved = saved_values(self.sums, self.route)
        self.place = slots(saved, self.cost)
        self.save_after = {one.start: one.value for one in saved}
        self.u = [tuple(row) for row in self.scheme.U.fractions()]
        self.v = [tuple(row) for row in self.scheme.V.fractions()]
        self.content: dict[Value, Sum] = {}  # of what earlier segments saved

    def segment(self, start: int, stop: int) -> None:
        """Write the moves from one clear to the next, with the best common factor."""
        moments = list(self._moments(start, stop))
        own = {
            self.save_after[moment.at]: moment.acc
            for moment in moments
            if moment.at in self.save_after
        }
        factors = {Fraction(1)} | {self._remedy(moment, own) for moment in moments}

        def dislike(factor: Fraction) -> int:
            return sum(self._dislike(m, self._scale(m, factor, own)) for m in moments)

        factor = min(sorted(factors, key=lambda x: (abs(x - 1), x)), key=dislike)
        for moment in moments:
            self._write(moment.move, self._scale(moment, factor, own))
            if moment.at in self.save_after:
                self.steps.append(Save(*self.place[self.save_after[moment.at]]))
        for value, acc in own.items():
            self.content[value] = {r: factor * x for r, x in acc.items()}

    def _moments(self, start: int, stop: int) -> Iterator[Moment]:
        acc: Sum = {}
        for at in range(start, stop):
            before, move = acc, self.route[at]
            match move:
                case AddProduct(product, _, output):
                    acc = self._extended(before, output, 1 << product)
                case AddValue(value, _, output):
                    acc = self._extended(before, output, value[1])
                case TakeValue(value):
                    acc = {r: x for r, x in before.items() if not value[1] >> r & 1}
            yield Moment(at, move, acc, before if isinstance(move, TakeValue) else acc)

    def _extended(self, acc: Sum, output: int, added: int) -> Sum:
        weights = self.sums.weights[output]
        factor = next((x / weights[r] for r, x in acc.items()), Fraction(1))
        return acc | {r: factor * weights[r] for r in members(added)}

    def _scale(self, moment: Moment, factor: Fraction, own: dict[Value, Sum]) -> Fraction:
        """What the product, the loaded value or the stored block is multiplied by."""
        match moment.move:
            case AddProduct(product):
                return factor * moment.acc[product]
            case AddValue(value) | TakeValue(value):
                content = own.get(value)
                if content is not None:
                    factor = Fraction(1)  # saved in this segment: it carries the same factor
                else:
                    content = self.content[value]
                r, coefficient = next(iter(content.items()))
                return factor * moment.whole[r] / coefficient
            case Finish(output):
                r, coefficient = next(iter(self.sums.weights[output].items()))
                return coefficient / (factor * moment.acc[r])

    def _remedy(self, moment: Moment, own: dict[Value, Sum]) -> Fraction:
        """The factor that a moment likes best: its scale becomes 1."""
        scale = self._scale(moment, Fraction(1), own)
        return scale if isinstance(moment.move, Finish) else 1 / scale

    def _dislike(self, moment: Moment, scale: Fraction) -> int:
        """How much a moment dislikes its scale: a plane to write counts most."""
        match moment.move:
            case AddProduct(r):
                return 100 * (scale != 1 and _terms(self.u[r]) == _terms(self.v[r]) == 1)
            case Finish():
                return 2 * (scale != 1)
        return int(abs(scale) != 1)

    def _write(self, move: Move, scale: Fraction) -> None:
        match move:
            case AddProduct(r, clear):
                self.steps.append(Multiply(*self._planes(r, scale), clear))
            case AddValue(value, clear):
                self.steps.append(Load(self.place[value][0], float(scale), clear))
            case TakeValue(value):
                self.steps.append(Load(self.place[value][0], -float(scale), False))
            case Finish(output):
                self.steps.append(Store(output, float(scale)))

    def _planes(self, r: int, coefficient: Fraction) -> tuple[int, int]:
        """Planes whose product is ``coefficient`` · product r, with the fewest new ones."""
        u, v = self.u[r], self.v[r]
        scaled = [tuple(coefficient * x for x in row) for row in (u, v)]
        ways = [(scaled[0], v), (u, scaled[1])]

        def new(way: tuple[Row, Row]) -> tuple[int, int]:
            rows = [x for x, known in zip(way, (self.a, self.b), strict=True) if x not in known]
            return sum(not _plane(row).plain for row in rows), len(rows)

        left, right = min(ways, key=new)
        return self.a.setdefault(left, len(self.a)), self.b.setdefault(right, len(self.b))


def _terms(row: Row) -> int:
    return sum(x != 0 for x in row)


def _plane(row: Row) -> Plane:
    return Plane(tuple((i, float(x)) for i, x in enumerate(row) if x != 0))
