"""Accumulator programs as tables of the fused kernel."""

import pytest

from tiercel import schemes
from tiercel.errors import TiercelValueError
from tiercel.lower.accumulator import AccumulatorProgram, Cost, accumulate
from tiercel.targets.hopper import fused


def program(name: str) -> AccumulatorProgram:
    return accumulate(schemes.get(name), cost=Cost(registers=1))


@pytest.fixture(scope="module")
def winograd() -> AccumulatorProgram:
    return program("winograd")


def named(lines: tuple[str, ...], name: str) -> list[str]:
    return [line for line in lines if line.split("(")[0] == name]


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("operand", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["winograd", "strassen", "accurate", "lean-2x2x3", "laderman"])
def test_producer_and_consumers_agree(name: str, operand: str, inside: bool):
    made = program(name)
    tables = fused.lower(made, operand, inside)
    fetched = [x for x in tables.fetches if x.startswith(("fetch(", "fetch_awaited("))]
    products = named(tables.steps, "multiply") + named(tables.steps, "multiply_in_place")
    counts = [int(x.rstrip(")").split(", ")[1]) for x in products]
    assert len(fetched) == sum(counts) == made.multiplies
    returned = named(tables.fetches, "fetch_saved") + named(tables.fetches, "fetch_again")
    assert len(returned) == len(named(tables.steps, "load_scratch"))
    assert len(named(tables.steps, "store")) == made.m * made.n


def test_a_saved_sum_is_awaited_once(winograd):
    made = program("accurate")
    tables = fused.lower(made, "bfloat16")
    saves = len(named(tables.steps, "save_scratch"))
    assert len(named(tables.fetches, "fetch_saved")) == saves
    assert made.transfers("scratch") == saves + len(named(tables.steps, "load_scratch"))


def test_plain_blocks_are_copied_where_they_meet_other_types(winograd):
    wide, narrow = fused.lower(winograd, "bfloat16"), fused.lower(winograd, "float16")
    assert len(fused.sums_of(wide.a_planes)) == 1 + len(fused.sums_of(narrow.a_planes)) == 5
    assert set(wide.kinds) == {"bfloat16", "float16"}
    assert narrow.kinds == ("float16",)


@pytest.mark.parametrize("operand", ["bfloat16", "float16"])
def test_the_head_reads_no_plane(winograd, operand: str):
    tables = fused.lower(winograd, operand, left=True)
    assert (tables.head_fetches, tables.head_steps) == (2, 4)
    assert [x for x in tables.fetches if "awaited" in x] == [tables.fetches[2]]
    assert not any("awaited" in x for x in fused.lower(winograd, operand).fetches)
    assert tables.steps[tables.head_steps - 1].startswith("store")


def test_sums_in_scratch_do_not_outlive_a_head():
    """Heads of several tiles run one after the other, and scratch slots are one tile's."""
    for name in ("strassen", "accurate", "laderman"):
        tables = fused.lower(program(name), "bfloat16", left=True)
        head = tables.steps[: tables.head_steps]
        assert not named(head, "save_scratch")


def test_two_register_slots_are_refused():
    made = accumulate(schemes.get("winograd"), cost=Cost(registers=2))
    assert made.registers == 2
    with pytest.raises(TiercelValueError, match="one register slot"):
        fused.lower(made, "bfloat16")
