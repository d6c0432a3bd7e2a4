"""Loads and stores hidden behind products: the program still computes the same."""

from dataclasses import replace

import pytest

from tiercel import schemes
from tiercel.lower.accumulator import accumulate
from tiercel.lower.accumulator.program import Load, Save, Store
from tiercel.lower.accumulator.verify import verify
from tiercel.targets.hopper.fused.drains import drains


def steps_of(program):
    return tuple(
        step for drain in drains(program.steps) for step in (*drain.products, *drain.after)
    )


@pytest.mark.parametrize(
    "name", ["winograd", "strassen", "accurate", "lean-2x2x3", "laderman", "lean-3x3x3"]
)
def test_moved_loads_leave_the_outputs_as_they_were(name: str):
    program = accumulate(schemes.get(name))
    verify(replace(program, steps=steps_of(program)))


def test_all_of_winograds_transfers_are_hidden():
    found = drains(accumulate(schemes.get("winograd")).steps)
    for drain in found:
        assert len(drain.parts) == sum(isinstance(x, Load) for x in drain.after) <= 1
        leaving = [x for x in drain.after if isinstance(x, (Save, Store))]
        assert leaving == ([drain.leaving] if drain.leaving else [])
