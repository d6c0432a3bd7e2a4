"""Where saved values live: when each is saved, in registers or in scratch memory, in which slot."""

from __future__ import annotations

from dataclasses import dataclass

from tiercel.lower.accumulator.cost import Cost
from tiercel.lower.accumulator.program import Kind
from tiercel.lower.accumulator.route import AddValue, Route, TakeValue, holdings
from tiercel.lower.accumulator.sums import Sums, Value, members

STATES = 256  # of the register choice; 343 products have over 20,000


@dataclass(frozen=True)
class Saved:
    """A value, saved after move ``start``, loaded ``loads`` times and last at move ``end``."""

    value: Value
    start: int
    end: int
    loads: int


def saved_values(sums: Sums, route: Route) -> tuple[Saved, ...]:
    """Every loaded value, saved as late as possible: slots are occupied for the shortest time."""
    holds = list(holdings(sums, route))
    loads: dict[Value, list[int]] = {}
    for at, move in enumerate(route):
        if isinstance(move, (AddValue, TakeValue)):
            loads.setdefault(move.value, []).append(at)
    found = [
        Saved(value, max(i for i in range(at[0]) if holds[i] == value), at[-1], len(at))
        for value, at in loads.items()
    ]
    return tuple(sorted(found, key=lambda saved: (saved.start, saved.end)))


def in_registers(saved: tuple[Saved, ...], capacity: int) -> frozenset[Saved]:
    """The values, at most ``capacity`` alive at once, that avoid most scratch transfers.

    Dynamic programming along the route: a state is the chosen values that are alive, with the most
    transfers avoided so far and all values chosen for that, both sets as bit masks. Exact up to
    STATES of them at a time, which two registers and 22 live values do not exceed.
    """
    states = {0: (0, 0)}
    for at, one in enumerate(saved):
        alive_now = sum(1 << i for i in range(at) if saved[i].end > one.start)
        after: dict[int, tuple[int, int]] = {}
        for alive, best in states.items():
            alive &= alive_now
            if best > after.get(alive, (-1, 0)):
                after[alive] = best
            if alive.bit_count() < capacity:
                avoided, chosen = best
                taken = alive | 1 << at
                best = avoided + 1 + one.loads, chosen | 1 << at
                if best > after.get(taken, (-1, 0)):
                    after[taken] = best
        states = after
        if len(states) > STATES:
            states = dict(sorted(states.items(), key=lambda x: x[1], reverse=True)[:STATES])
    _, chosen = max(states.values())
    return frozenset(saved[i] for i in members(chosen))


def price(sums: Sums, route: Route, cost: Cost) -> float:
    """Cost of a route's transfers once its values are placed."""
    saved = saved_values(sums, route)
    near = in_registers(saved, cost.registers)
    transfers = sum((1 + x.loads) * (cost.register if x in near else cost.scratch) for x in saved)
    return transfers + cost.take * sum(isinstance(move, TakeValue) for move in route)


def slots(saved: tuple[Saved, ...], cost: Cost) -> dict[Value, tuple[int, Kind]]:
    """Slot number and kind of each value; registers are numbered first."""
    near = in_registers(saved, cost.registers)
    registers = _numbered([x for x in saved if x in near])
    scratch = _numbered([x for x in saved if x not in near])
    count = max(registers.values(), default=-1) + 1
    placed: dict[Value, tuple[int, Kind]] = {}
    placed |= {value: (slot, "register") for value, slot in registers.items()}
    placed |= {value: (count + slot, "scratch") for value, slot in scratch.items()}
    return placed


def _numbered(saved: list[Saved]) -> dict[Value, int]:
    """The lowest number that is free from ``start`` on; by start, that needs the fewest numbers."""
    ends: list[int] = []
    numbers = {}
    for one in saved:
        number = next((i for i, end in enumerate(ends) if end <= one.start), len(ends))
        ends[number : number + 1] = [one.end]
        numbers[one.value] = number
    return numbers
