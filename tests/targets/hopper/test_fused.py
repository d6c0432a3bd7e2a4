"""Accumulator programs as statements of the kernel."""

import pytest

from tiercel import schemes
from tiercel.errors import TiercelValueError
from tiercel.lower.accumulator import AccumulatorProgram, Cost, accumulate
from tiercel.targets.hopper import fused


@pytest.fixture(scope="module")
def winograd() -> AccumulatorProgram:
    return accumulate(schemes.get("winograd"), cost=Cost(registers=1))


def statements(lines: tuple[str, ...], start: str) -> list[str]:
    return [line for line in lines if line.startswith(start)]


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("operand", ["bfloat16", "float16"])
def test_producer_and_consumers_agree(winograd, operand: str, inside: bool):
    kernel = fused.lower(winograd, operand, inside).kernel
    assert len(statements(kernel.produce, "load.multiply")) == winograd.multiplies
    assert len(statements(kernel.consume, "tile.multiply")) == winograd.multiplies
    assert len(statements(kernel.produce, "load.load_scratch")) == len(
        statements(kernel.consume, "load_scratch")
    )
    assert len(statements(kernel.consume, "store")) == 4


def test_plain_blocks_are_copied_where_they_meet_other_types(winograd):
    wide, narrow = fused.lower(winograd, "bfloat16"), fused.lower(winograd, "float16")
    assert len(fused.sums_of(wide.a_planes)) == 1 + len(fused.sums_of(narrow.a_planes)) == 5
    assert set(wide.kernel.kinds) == {"bfloat16", "float16"}
    assert narrow.kernel.kinds == ("float16",)


def test_one_product_waits_for_the_planes(winograd):
    kernel = fused.lower(winograd, "bfloat16", inside=True).kernel
    awaited = [i for i, line in enumerate(kernel.produce) if "awaited" in line]
    assert awaited == [2]  # the first two products read plain blocks
    assert not any("awaited" in x for x in fused.lower(winograd, "bfloat16").kernel.produce)


def test_accumulator_is_drained_before_it_is_read(winograd):
    busy = False
    for line in fused.lower(winograd, "bfloat16").kernel.consume:
        if line.startswith("tile.multiply"):
            busy = True
        elif line.startswith("tile.drain"):
            busy = False
        elif "acc" in line:
            assert not busy, line


def test_two_register_slots_are_refused():
    program = accumulate(schemes.get("winograd"), cost=Cost(registers=2))
    assert program.registers == 2
    with pytest.raises(TiercelValueError, match="one register slot"):
        fused.lower(program, "bfloat16")
