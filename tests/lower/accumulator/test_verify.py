"""The proof rejects what does not multiply; the listing shows what would run."""

from dataclasses import replace

import pytest

from tiercel import schemes
from tiercel.errors import TiercelRuntimeError
from tiercel.lower.accumulator import AccumulatorProgram, Load, Save, Store, accumulate, verify

PROGRAM = accumulate(schemes.get("winograd"))


def without(program: AccumulatorProgram, at: int) -> AccumulatorProgram:
    return replace(program, steps=program.steps[:at] + program.steps[at + 1 :])


@pytest.mark.parametrize(
    "at", [i for i, step in enumerate(PROGRAM.steps) if isinstance(step, (Load, Store))]
)
def test_a_missing_step_is_found(at: int):
    with pytest.raises(TiercelRuntimeError, match="winograd"):
        verify(without(PROGRAM, at))


def test_a_wrong_sign_is_found():
    at = next(i for i, step in enumerate(PROGRAM.steps) if isinstance(step, Load))
    load = PROGRAM.steps[at]
    assert isinstance(load, Load)
    steps = list(PROGRAM.steps)
    steps[at] = replace(load, scale=-load.scale)
    with pytest.raises(TiercelRuntimeError, match="does not multiply"):
        verify(replace(PROGRAM, steps=tuple(steps)))


def test_a_block_stored_twice_is_found():
    with pytest.raises(TiercelRuntimeError, match="once"):
        verify(replace(PROGRAM, steps=(*PROGRAM.steps, PROGRAM.steps[-1])))


def test_listing_has_one_line_per_step():
    lines = str(PROGRAM).splitlines()
    assert lines[0] == (
        "winograd: 7 multiplies, 3 saves, 3 loads; 2 register and 0 scratch slots; grid 2×2×2"
    )
    assert lines[1:4] == ["  acc  = (A0) · (B0)", "  r0 = acc", "  acc += (A1) · (B2)"]
    assert len(lines) == 1 + len(PROGRAM.steps)


def test_lifetimes_end_with_the_last_load():
    alive = dict(enumerate(live for _, live in PROGRAM.live()))
    assert alive[len(PROGRAM.steps) - 1] == frozenset()
    for at, step in enumerate(PROGRAM.steps):
        if isinstance(step, Save):
            assert step.slot in alive[at]
