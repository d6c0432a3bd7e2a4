"""Register choice against exhaustive search; slot numbers never collide."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from tiercel.lower.accumulator import Cost
from tiercel.lower.accumulator.slots import Saved, in_registers, slots


@st.composite
def lifetimes(draw: st.DrawFn) -> tuple[Saved, ...]:
    spans = draw(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 6), st.integers(1, 4))))
    values = [
        Saved((0, number), start, start + length, loads)
        for number, (start, length, loads) in enumerate(spans[:8])
    ]
    return tuple(sorted(values, key=lambda one: (one.start, one.end)))


def crowd(saved: tuple[Saved, ...]) -> int:
    """Most values that are alive at once."""
    return max((sum(x.start <= t < x.end for x in saved) for t in range(20)), default=0)


def avoided(saved: frozenset[Saved]) -> int:
    return sum(1 + x.loads for x in saved)


@given(saved=lifetimes(), capacity=st.integers(0, 3))
def test_registers_avoid_most_scratch_transfers(saved: tuple[Saved, ...], capacity: int):
    chosen = in_registers(saved, capacity)
    assert crowd(tuple(chosen)) <= capacity
    best = max(
        avoided(frozenset(some))
        for size in range(len(saved) + 1)
        for some in combinations(saved, size)
        if crowd(some) <= capacity
    )
    assert avoided(chosen) == best


@given(saved=lifetimes(), capacity=st.integers(0, 3))
def test_live_values_have_slots_of_their_own(saved: tuple[Saved, ...], capacity: int):
    placed = slots(saved, Cost(registers=capacity))
    for one, other in combinations(saved, 2):
        if one.start < other.end and other.start < one.end:
            assert placed[one.value] != placed[other.value]
    near = tuple(x for x in saved if placed[x.value][1] == "register")
    far = tuple(x for x in saved if placed[x.value][1] == "scratch")
    registers = {placed[x.value][0] for x in near}
    assert registers == set(range(crowd(near)))
    assert {placed[x.value][0] for x in far} == {len(registers) + i for i in range(crowd(far))}
