"""Every catalogue scheme as an accumulator program, against the definition of the product."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiercel import schemes
from tiercel.lower.accumulator import (
    AccumulatorProgram,
    Cost,
    Load,
    Multiply,
    Save,
    Store,
    accumulate,
    run,
)
from tiercel.lower.accumulator import search as route_search
from tiercel.lower.accumulator.search import shipped_names

SHIPPED = shipped_names()
SEARCHED = [
    pytest.param(name, marks=pytest.mark.slow) if schemes.get(name).rank > 300 else name
    for name in schemes.names()
    if name not in SHIPPED
]


def operands(program: AccumulatorProgram, dtype: type) -> tuple[np.ndarray, np.ndarray]:
    """Small integers, two rows and columns a block: every sum of them is exact in float64."""
    rng = np.random.default_rng(program.multiplies)
    shapes = (2 * program.m, 2 * program.k), (2 * program.k, 2 * program.n)
    a, b = (rng.integers(-9, 10, shape).astype(dtype) for shape in shapes)
    return a, b


def integral(program: AccumulatorProgram) -> bool:
    planes = [c for p in (*program.a_planes, *program.b_planes) for _, c in p.terms]
    scales = [step.scale for step in program.steps if isinstance(step, (Load, Store))]
    return all(x == int(x) for x in (*planes, *scales))


def check_slots(program: AccumulatorProgram, capacity: int) -> None:
    """Only saved slots are loaded, registers come first and within capacity, none is lost."""
    kinds: dict[int, str] = {}
    for step in program.steps:
        if isinstance(step, Save):
            assert kinds.setdefault(step.slot, step.kind) == step.kind
        elif isinstance(step, Load):
            assert step.slot in kinds
    assert sorted(kinds) == list(range(program.registers + program.scratch_slots))
    assert {slot for slot, kind in kinds.items() if kind == "register"} == set(
        range(program.registers)
    )
    assert program.registers <= capacity
    assert max(program.peak_slots, program.registers) <= len(kinds)


def check(program: AccumulatorProgram, scheme: schemes.Scheme, capacity: int = 2) -> None:
    assert program.multiplies == scheme.rank  # nothing is computed twice
    assert isinstance(program.steps[0], Multiply)
    assert program.steps[0].clear
    assert isinstance(program.steps[-1], Store)
    assert program.transfers("register") + program.transfers("scratch") == (
        program.saves + program.loads
    )
    check_slots(program, capacity)
    a, b = operands(program, np.int64 if integral(program) else np.float64)
    np.testing.assert_array_equal(run(program, a, b), a @ b)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_program_is_exact(name: str, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise AssertionError("a scheme whose route is shipped must not be searched")

    monkeypatch.setattr(route_search, "search", refuse)
    scheme = schemes.get(name)
    check(accumulate(scheme), scheme)


@pytest.mark.parametrize("name", SEARCHED)
def test_searched_program_is_exact(name: str):
    scheme = schemes.get(name)
    check(accumulate(scheme, drafts=2), scheme)


@pytest.mark.parametrize("name", SHIPPED)
def test_planes_are_those_of_the_scheme(name: str):
    """Sums of several blocks are written, single blocks read in place, equal sums written once."""
    scheme = schemes.normalise(schemes.get(name))
    program = accumulate(scheme)
    for operand, factor in (("a", scheme.U), ("b", scheme.V)):
        rows = {tuple(row) for row in factor.fractions()}
        sums = sum(np.count_nonzero(row) > 1 for row in rows)
        # A sum that two products need with different factors may have to be written twice.
        assert sums <= program.written_planes(operand) <= sums + 1


@pytest.mark.parametrize(
    ("name", "saves", "loads", "registers", "scratch"),
    [("winograd", 3, 3, 2, 0), ("strassen", 3, 7, 2, 1), ("strassen-2x2x3", 3, 7, 2, 1)],
)
def test_traffic_of_small_schemes(name: str, saves: int, loads: int, registers: int, scratch: int):
    program = accumulate(schemes.get(name))
    assert (program.saves, program.loads) == (saves, loads)
    assert (program.registers, program.scratch_slots) == (registers, scratch)


@settings(max_examples=25, deadline=None)
@given(data=st.data(), name=st.sampled_from(["winograd", "strassen", "hopcroft-kerr-2x3x3"]))
def test_order_and_signs_of_products_do_not_matter(data: st.DataObject, name: str):
    scheme = schemes.get(name)
    order = data.draw(st.permutations(range(scheme.rank)))
    scales = st.lists(st.sampled_from([-2, -1, 1, 4]), min_size=scheme.rank, max_size=scheme.rank)
    changed = schemes.scale_products(
        schemes.permute_products(scheme, order), data.draw(scales), data.draw(scales)
    )
    program, known = accumulate(changed), accumulate(scheme)
    check(program, scheme)
    assert (program.saves, program.loads) == (known.saves, known.loads)


@pytest.mark.parametrize("registers", [0, 1, 3])
def test_capacity_of_registers_is_respected(registers: int):
    scheme = schemes.get("strassen")
    program = accumulate(scheme, cost=Cost(registers=registers), drafts=200)
    check(program, scheme, registers)


def test_levels_are_tensor_products():
    scheme = schemes.tensor(schemes.get("winograd"), schemes.classical(1, 2, 1))
    check(accumulate(scheme, drafts=200), scheme)
