"""A draft: the free choices of a route, and the rules that turn them into one.

Outputs are finished in the draft's order. Each one's new products join the accumulator in the
draft's order; its older part is covered by values held before, largest first. Everything the
accumulator ever held may be loaded, and the first load of a value pays for saving it. A product
that no held value offers by itself, though an output needs it so, is moved out of the sum it was
first used in and saved alone. So every draft gives a correct route, and the search may change one
freely.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tiercel.lower.accumulator.cost import Cost
from tiercel.lower.accumulator.route import (
    AddProduct,
    AddValue,
    Finish,
    Move,
    Route,
    TakeValue,
    clears,
)
from tiercel.lower.accumulator.sums import Sums, Value, members

Place = Literal["chain", "alone", "early"]
PLACES: tuple[Place, ...] = ("chain", "alone", "early")


@dataclass(frozen=True)
class Draft:
    """``outputs``: their order. ``rank[r]``: where product r stands among an output's new ones.

    ``place[r]``: in the ``chain`` of its output; computed ``alone``, before that chain; or
    ``early``: alone, before the chain in front of it. ``loads_at[j]``: new products of lower rank
    join output j before its older part does.
    """

    outputs: tuple[int, ...]
    rank: tuple[float, ...]
    place: tuple[Place, ...]
    loads_at: tuple[float, ...]


@dataclass
class Way:
    """One way to bring the older part of an output into the accumulator.

    ``keep``: products of the accumulator that stay in it, after ``take`` was subtracted; then
    ``loads``; ``missing``: products that no held value offers.
    """

    price: float
    keep: int
    take: Value | None
    loads: list[Value]
    missing: int


def settle(sums: Sums, cost: Cost, draft: Draft) -> Route:
    """The moves of a draft."""
    work = _Settling(sums, cost)
    for output in draft.outputs:
        work.finish(output, draft)
    return tuple(work.moves)


class _Settling:
    """``held``, ``saved``: values so far. ``family[j]``: product sets that output j may load."""

    def __init__(self, sums: Sums, cost: Cost) -> None:
        self.sums, self.cost = sums, cost
        self.executed = 0
        self.unfinished = (1 << sums.outputs) - 1
        self.acc: Value | None = None
        self.held: set[Value] = set()
        self.saved: set[Value] = set()
        self.family: list[list[int]] = [[] for _ in range(sums.outputs)]
        self.moves: list[Move] = []

    def finish(self, j: int, draft: Draft) -> None:
        """Bring output j to its end."""
        sums, mine = self.sums, 1 << j
        fresh = list(members(sums.support[j] & ~self.executed))
        only = [r for r in fresh if sums.users[r] & self.unfinished == mine]
        shared = [r for r in fresh if sums.users[r] & self.unfinished != mine]
        shared.sort(key=draft.rank.__getitem__)
        for r in shared:
            if draft.place[r] == "alone":
                self._product(r, j, 0)
            elif draft.place[r] == "early":
                self._early(r, j)
        chain = [r for r in shared if draft.place[r] == "chain"]
        begun = sums.support[j] & self.executed
        first = sum(draft.rank[r] < draft.loads_at[j] for r in chain) if begun else 0
        together = 0
        for r in chain[:first]:
            together = self._product(r, j, together)
        if begun:
            together = self._older_part(j, begun, together)
        # Products that nobody else reads come last: the sums before them may still be shared.
        for r in chain[first:] + only:
            together = self._product(r, j, together)
        self.moves.append(Finish(j))
        self.unfinished &= ~mine

    def _older_part(self, j: int, begun: int, together: int) -> int:
        ways = [self._cover(j, begun)]
        if not together:
            ways += self._continuations(j, begun)
        way = min(ways, key=lambda way: way.price)
        for r in members(way.missing):
            self._set_apart(r, j)
        if way.missing:
            way = self._cover(j, begun & ~way.keep, way.keep, way.take)
        if way.take is not None and self.acc is not None:
            output = self.acc[0]
            self.saved.add(way.take)
            self.moves.append(TakeValue(way.take, output))
            self._hold(self.sums.value(output, way.keep))
        together |= way.keep
        for value in way.loads:
            clear, together = together == 0, together | value[1]
            if not (clear and self.acc == value):
                self.saved.add(value)
                self.moves.append(AddValue(value, clear, j))
                self._hold(self.sums.value(j, together))
        return together

    def _continuations(self, j: int, begun: int) -> list[Way]:
        """Ways that keep what the accumulator holds, or all of it but one held value."""
        if self.acc is None:
            return []
        sums, (output, products) = self.sums, self.acc
        ways = []
        if sums.readers(output, products) >> j & 1 and not products & ~begun:
            ways.append(self._cover(j, begun & ~products, products))
        for part in self.family[output]:
            keep = products & ~part
            if not keep or part & ~products or keep & ~begun:
                continue
            if sums.readers(output, keep) >> j & 1:
                ways.append(self._cover(j, begun & ~keep, keep, sums.value(output, part)))
        return ways

    def _cover(self, j: int, wanted: int, keep: int = 0, take: Value | None = None) -> Way:
        """Disjoint held values that make ``wanted``, largest first."""
        price, loads = 0.0, []
        if take is not None:
            price = self.cost.load + self.cost.take + self._unsaved(take)
        for products in self.family[j]:
            if not products & ~wanted:
                value = self.sums.value(j, products)
                loads.append(value)
                price += self.cost.load + self._unsaved(value)
                wanted &= ~products
                if not wanted:
                    break
        # A missing product is saved alone, loaded where it was first used, and loaded here.
        price += wanted.bit_count() * (self.cost.save + 2 * self.cost.load)
        return Way(price, keep, take, loads, wanted)

    def _unsaved(self, value: Value) -> float:
        return 0.0 if value in self.saved else self.cost.save

    def _product(self, r: int, j: int, together: int) -> int:
        """Add product r to the sum ``together`` of output j; an empty one is cleared."""
        self.executed |= 1 << r
        self.moves.append(AddProduct(r, together == 0, j))
        together |= 1 << r
        self._hold(self.sums.value(j, together))
        return together

    def _early(self, r: int, j: int) -> None:
        """Compute product r where the accumulator was last cleared, and needs no saving."""
        at = len(self.moves) - 1
        while at > 0 and not clears(self.moves[at]):
            at -= 1
        self._insert(max(at, 0), r, j)

    def _set_apart(self, r: int, j: int) -> None:
        """Compute product r alone, and load it where it joined a sum until now."""
        at = next(
            i
            for i, move in enumerate(self.moves)
            if isinstance(move, AddProduct) and move.product == r
        )
        self.moves[at] = AddValue(self.sums.value(j, 1 << r), False, self.moves[at].output)
        while not clears(self.moves[at]):
            at -= 1
        self._insert(at, r, j)
        self.saved.add(self.sums.value(j, 1 << r))

    def _insert(self, at: int, r: int, j: int) -> None:
        self.executed |= 1 << r
        self.moves.insert(at, AddProduct(r, True, j))
        acc = self.acc
        self._hold(self.sums.value(j, 1 << r))
        self.acc = acc

    def _hold(self, value: Value) -> None:
        self.acc = value
        if value in self.held:
            return
        self.held.add(value)
        products = value[1]
        size = products.bit_count()
        for j in members(self.sums.readers(*value)):
            family = self.family[j]
            at = 0
            while at < len(family) and family[at].bit_count() >= size:
                at += 1
            family.insert(at, products)
