"""The cheapest route of a small scheme, proven: A* over accumulator, slots and remaining products.

The space searched: each product is computed once, and the accumulator holds a partial sum of an
output at all times, so that no sum grows beyond what the output itself needs.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from tiercel.lower.accumulator.cost import Cost
from tiercel.lower.accumulator.route import AddProduct, AddValue, Finish, Move, Route, TakeValue
from tiercel.lower.accumulator.sums import Sums, Value, members


@dataclass(frozen=True)
class State:
    """``executed`` products, ``done`` outputs, what the accumulator and the slots hold."""

    executed: int
    done: int
    acc: Value | None
    slots: frozenset[Value]


def cheapest_route(sums: Sums, cost: Cost, *, states: int = 200_000) -> Route | None:
    """The route of least cost, or ``None`` when ``states`` were visited without proving one."""
    bound = _Bound(sums, cost)
    start = State(0, 0, None, frozenset())
    best = {start: 0.0}
    came: dict[State, tuple[State, tuple[Move, ...]]] = {}
    ticket = count()
    queue = [(bound(start), 0, next(ticket), start)]
    finished = (1 << sums.outputs) - 1
    while queue and len(best) < states:
        estimate, _, _, state = heapq.heappop(queue)
        if state.done == finished:
            return _trace(came, state)
        spent = best[state]
        if estimate > spent + bound(state) + 1e-9:
            continue  # a cheaper way to this state was found after it was queued
        for price, moves, after in _successors(sums, cost, state):
            total = spent + price
            if total < best.get(after, float("inf")) - 1e-9:
                best[after] = total
                came[after] = state, moves
                depth = -(after.executed.bit_count() + after.done.bit_count())
                heapq.heappush(queue, (total + bound(after), depth, next(ticket), after))
    return None


class _Bound:
    """A lower bound on what a state still costs."""

    def __init__(self, sums: Sums, cost: Cost) -> None:
        self.sums, self.cost = sums, cost
        pairs = [(i, j) for i in range(sums.outputs) for j in range(sums.outputs) if i != j]
        # An output that contains another could continue from it without a load.
        self.nested = any(sums.readers(i, sums.support[i]) >> j & 1 for i, j in pairs)
        self.free: dict[int, int] = {0: 0}

    def __call__(self, state: State) -> float:
        sums = self.sums
        left = ((1 << sums.outputs) - 1) & ~state.done
        if not left or self.nested:
            return 0.0
        fresh = sum(1 << j for j in members(left) if not sums.support[j] & state.executed)
        carried = state.acc is not None and bool(sums.readers(*state.acc) & left)
        loads = max(0, left.bit_count() - self._disjoint(fresh) - carried)
        return loads * self.cost.load + (loads > 0 and not state.slots) * self.cost.save

    def _disjoint(self, outputs: int) -> int:
        """Most outputs without a common product: each other one must load what it shares."""
        if outputs not in self.free:
            first = (outputs & -outputs).bit_length() - 1
            rest = outputs & (outputs - 1)
            apart = sum(
                1 << j for j in members(rest) if not self.sums.support[first] & self.sums.support[j]
            )
            self.free[outputs] = max(self._disjoint(rest), 1 + self._disjoint(apart))
        return self.free[outputs]


def _successors(
    sums: Sums, cost: Cost, state: State
) -> Iterator[tuple[float, tuple[Move, ...], State]]:
    acc, slots, executed, done = state.acc, state.slots, state.executed, state.done
    if acc is not None and acc not in slots:
        saved = State(executed, done, acc, slots | {acc})
        if any(sums.users[r] & ~done for r in members(acc[1])):
            yield cost.save, (), saved
    for price, move, value in [*_products(sums, state), *_values(sums, cost, state)]:
        now = executed | (1 << move.product) if isinstance(move, AddProduct) else executed
        after, moves = State(now, done, value, slots), (move,)
        ready = _ready(sums, value, done)
        if ready is not None:
            after = State(now, done | 1 << ready, value, slots)
            moves += (Finish(ready),)
        if _recoverable(sums, after):
            yield price, moves, after


def _products(sums: Sums, state: State) -> Iterator[tuple[float, AddProduct, Value]]:
    left = ((1 << sums.products) - 1) & ~state.executed
    for r in members(left):
        bit = 1 << r
        users = sums.users[r] & ~state.done
        alone = users & (users - 1) == 0  # one output reads it
        first = (users & -users).bit_length() - 1
        if not (alone and _shared_left(sums, state, first, bit)):
            yield 0.0, AddProduct(r, True, first), sums.value(first, bit)
        if state.acc is not None:
            for j in members(sums.readers(*state.acc) & users):
                together = state.acc[1] | bit
                if not (alone and _shared_left(sums, state, j, together)):
                    yield 0.0, AddProduct(r, False, j), sums.value(j, together)


def _shared_left(sums: Sums, state: State, output: int, together: int) -> bool:
    """Whether the output still lacks what others may share: its own products can wait for that."""
    rest = sums.support[output] & ~together
    return any(
        state.executed >> r & 1 or sums.users[r] & ~state.done & ~(1 << output)
        for r in members(rest)
    )


def _values(
    sums: Sums, cost: Cost, state: State
) -> Iterator[tuple[float, AddValue | TakeValue, Value]]:
    unfinished = ((1 << sums.outputs) - 1) & ~state.done
    for value in state.slots:
        readers = sums.readers(*value) & unfinished
        if readers:
            yield cost.load, AddValue(value, True, (readers & -readers).bit_length() - 1), value
        if state.acc is None or value == state.acc:
            continue
        output, held = state.acc
        if not value[1] & held:
            found = set()
            for j in members(readers & sums.readers(*state.acc)):
                after = sums.value(j, value[1] | held)
                if after not in found:
                    found.add(after)
                    yield cost.load, AddValue(value, False, j), after
        elif not value[1] & ~held and value[1] != held and sums.readers(*value) >> output & 1:
            after = sums.value(output, held & ~value[1])
            if sums.readers(*after) & unfinished:
                yield cost.load + cost.take, TakeValue(value, output), after


def _ready(sums: Sums, value: Value, done: int) -> int | None:
    """The unfinished output that ``value`` is the whole of."""
    for j in members(sums.readers(*value) & ~done):
        if sums.support[j] == value[1]:
            return j
    return None


def _recoverable(sums: Sums, state: State) -> bool:
    """Whether every product that an unfinished output needs is still held somewhere."""
    held = state.acc[1] if state.acc else 0
    for _, products in state.slots:
        held |= products
    lost = state.executed & ~held
    return not any(sums.users[r] & ~state.done for r in members(lost))


def _trace(came: dict[State, tuple[State, tuple[Move, ...]]], state: State) -> Route:
    parts = []
    while state in came:
        state, moves = came[state]
        parts.append(moves)
    return tuple(move for moves in reversed(parts) for move in moves)
