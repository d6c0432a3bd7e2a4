"""Accumulator programs as tables of the fused kernel."""

import pytest

from tiercel import schemes
from tiercel.lower.accumulator import AccumulatorProgram, accumulate
from tiercel.lower.accumulator.combining import BAND
from tiercel.targets.hopper.fused import tables as fused
from tiercel.targets.hopper.products import heuristic


def program(name: str) -> AccumulatorProgram:
    return accumulate(schemes.get(name))


@pytest.fixture(scope="module")
def winograd() -> AccumulatorProgram:
    return program("winograd")


def test_the_walk_goes_by_the_bands_that_combining_expects():
    assert heuristic.GROUP == BAND


def named(lines: tuple[str, ...], name: str) -> list[str]:
    return [line for line in lines if line.split("(")[0] == name]


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("operand", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["winograd", "strassen", "accurate", "lean-2x2x3", "laderman"])
def test_producer_and_consumers_agree(name: str, operand: str, inside: bool):
    made = program(name)
    tables = fused.lower(made, operand, inside)
    products = named(tables.steps, "multiply") + named(tables.steps, "multiply_in_place")
    # Of the parts of a product the first is counted.
    firsts = [x for x in products if "Part{" not in x or "Part{0" in x]
    counts = [int(x.rstrip(")").split(", ")[1]) for x in firsts]
    assert len(tables.products) == sum(counts) == made.multiplies
    saves = named(tables.steps, "save") + named(tables.steps, "save_now")
    assert len(saves) == made.saves
    loads = named(tables.steps, "load") + named(tables.steps, "fetch_and_load")
    assert len(loads) == made.loads
    stores = named(tables.steps, "store") + named(tables.steps, "store_now")
    assert len(stores) == made.m * made.n


@pytest.mark.parametrize("name", ["winograd", "strassen", "laderman"])
def test_what_was_fetched_is_loaded_before_the_box_is_needed(name: str):
    holds = None
    for step in fused.lower(program(name), "bfloat16").steps:
        kind, arguments = step.rstrip(")").split("(")
        slots = arguments.split(", ")[2:]
        if kind.startswith("multiply"):
            assert holds is None
            holds = slots[0] if slots and slots[0] != "no_slot" else None
        elif kind == "load":
            assert holds is not None
            holds = None
        elif kind not in ("save_now", "rescale"):
            assert holds is None


def test_plain_blocks_are_copied_where_they_meet_other_types(winograd):
    wide, narrow = fused.lower(winograd, "bfloat16"), fused.lower(winograd, "float16")
    assert len(fused.sums_of(wide.a_planes)) == 1 + len(fused.sums_of(narrow.a_planes)) == 5
    assert set(wide.kinds) == {"bfloat16", "float16"}
    assert narrow.kinds == ("float16",)


@pytest.mark.parametrize("operand", ["bfloat16", "float16"])
def test_the_head_reads_no_plane(winograd, operand: str):
    tables = fused.lower(winograd, operand, left=True)
    assert (tables.head_products, tables.head_steps) == (2, 4)
    assert [x for x in tables.products if "awaited" in x] == [tables.products[2]]
    assert not any("awaited" in x for x in fused.lower(winograd, operand).products)
    assert tables.steps[tables.head_steps - 1].startswith("store")


@pytest.mark.parametrize("early", [3, 7])
def test_early_planes_come_first_in_memory_and_suffice_for_the_first_products(early: int):
    made = program("lean-4x2x4")
    tables = fused.lower(made, "bfloat16", True, early=early)
    (awaited,) = (i for i, x in enumerate(tables.products) if "awaited" in x)
    assert awaited >= early
    for planes in (tables.a_planes, tables.b_planes):
        first, rest = fused.early_and_late(planes)
        assert first
        assert (*first, *rest) == tuple(x for x in planes if x.written)
    pairs = [tuple(map(int, x.rstrip(")").split("(")[1].split(", "))) for x in tables.products]
    read = [(tables.a_planes[a], tables.b_planes[b]) for a, b in pairs]
    assert all(x.early or not x.written for pair in read[:awaited] for x in pair)
    assert any(x.written and not x.early for x in read[awaited])
    plain = fused.lower(made, "bfloat16")
    assert [x.plane for x in plain.a_planes] == [x.plane for x in tables.a_planes]


@pytest.mark.parametrize("operand", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["winograd", "accurate", "lean-4x2x4", "lean-4x4x2"])
def test_saved_sums_have_one_unit(name: str, operand: str):
    scaled = False
    for step in fused.lower(program(name), operand).steps:
        kind = step.split("(")[0]
        if kind in ("multiply", "multiply_in_place"):
            scaled = operand == "bfloat16" and kind == "multiply"
        elif kind == "rescale":
            scaled = "Unit::scale" in step
        elif kind in ("load", "fetch_and_load"):
            scaled &= "From::sum" in step
            assert ("Unit::scale" in step) == scaled
        else:
            assert ("Unit::unscale" in step) == scaled
