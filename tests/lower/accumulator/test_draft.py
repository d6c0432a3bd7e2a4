"""Any draft, however odd, gives a program that multiplies."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiercel import schemes
from tiercel.lower.accumulator import Cost, verify
from tiercel.lower.accumulator.build import build
from tiercel.lower.accumulator.compile import canonical
from tiercel.lower.accumulator.draft import PLACES, Draft, settle
from tiercel.lower.accumulator.route import AddProduct, Finish, holdings
from tiercel.lower.accumulator.sums import Sums, sums_of
from tiercel.lower.accumulator.text import format_route, parse_route

NAMES = ["winograd", "strassen", "accurate", "hopcroft-kerr-3x2x3", "laderman", "sparse-3x3x3"]
ranks = st.floats(0, 1, allow_nan=False)


@st.composite
def drafts(draw: st.DrawFn, sums: Sums) -> Draft:
    def several(elements: st.SearchStrategy, count: int) -> tuple:
        return tuple(draw(st.lists(elements, min_size=count, max_size=count)))

    return Draft(
        outputs=tuple(draw(st.permutations(range(sums.outputs)))),
        rank=several(ranks, sums.products),
        place=several(st.sampled_from(PLACES), sums.products),
        loads_at=several(ranks, sums.outputs),
    )


@settings(max_examples=60, deadline=None)
@given(data=st.data(), name=st.sampled_from(NAMES))
def test_every_draft_is_a_correct_route(data: st.DataObject, name: str):
    scheme = canonical(schemes.get(name))
    sums = sums_of(scheme)
    route = settle(sums, Cost(), data.draw(drafts(sums)))
    products = [move.product for move in route if isinstance(move, AddProduct)]
    assert sorted(products) == list(range(scheme.rank))
    verify(build(scheme, route, Cost()))


@settings(max_examples=30, deadline=None)
@given(data=st.data(), name=st.sampled_from(NAMES))
def test_accumulator_always_holds_part_of_an_output(data: st.DataObject, name: str):
    sums = sums_of(canonical(schemes.get(name)))
    route = settle(sums, Cost(), data.draw(drafts(sums)))
    for move, (output, products) in zip(route, holdings(sums, route), strict=True):
        assert products & ~sums.support[output] == 0
        if isinstance(move, Finish):
            assert products == sums.support[move.output]


@settings(max_examples=30, deadline=None)
@given(data=st.data(), name=st.sampled_from(NAMES))
def test_text_of_a_route_reads_back(data: st.DataObject, name: str):
    sums = sums_of(canonical(schemes.get(name)))
    route = settle(sums, Cost(), data.draw(drafts(sums)))
    assert parse_route(sums, format_route(sums, route)) == route


@pytest.mark.parametrize("word", ["p0/0", "=q0/0", "=@0/0", "-@3", "!x", "+@-1/0"])
def test_unreadable_route_is_refused(word: str):
    from tiercel.errors import TiercelValueError

    with pytest.raises(TiercelValueError, match="cannot read the word"):
        parse_route(sums_of(schemes.get("winograd")), word)
