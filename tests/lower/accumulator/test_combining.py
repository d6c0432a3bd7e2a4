"""When planes are combined, decided from sizes alone."""

import pytest

from tiercel import schemes
from tiercel.lower.accumulator import accumulate
from tiercel.lower.accumulator.combining import IDLE_WARPS, WARPS, Amount, Combining, choose

WINOGRAD, LEAN = (accumulate(schemes.get(name)) for name in ("winograd", "lean-4x2x4"))


@pytest.mark.parametrize("where", ["before", "beside", "first", "both"])
def test_whole_clusters_and_idle_warps_combine(where):
    whole, idle = Combining(where, clusters=3, sixteenths=4).workers(blocks=10, cluster=2)
    assert whole == (WARPS * 6 if where in ("first", "both") else 0)
    assert idle == (IDLE_WARPS * 10 if where in ("beside", "both") else 0)


def test_planes_come_before_where_there_is_no_time():
    amount = Amount.of(16, 8, clusters=66, k_tiles=224, left=150e6)
    assert choose(amount, WINOGRAD) == Combining()


def test_heads_run_ahead_for_as_long_as_combining_takes():
    few, many = (choose(Amount.of(16, 16, 66, k_tiles=448, left=x), WINOGRAD) for x in (1e6, 3e8))
    assert few.split < many.split
    assert many.where == "first"


def test_idle_warps_combine_two_operands_and_products_of_one_turn():
    both = choose(Amount.of(16, 16, 66, k_tiles=448, left=302e6, right=302e6), WINOGRAD)
    assert both == Combining("beside", split=3)
    assert choose(Amount.of(8, 8, 66, k_tiles=224, left=75e6), WINOGRAD) == Combining("beside")


def test_the_guard_leaves_whole_clusters_time_where_k_is_long():
    short, long = (
        choose(Amount.of(16, 16, 66, k_tiles=7 * k, left=k * 4.7e6), WINOGRAD, judged=True)
        for k in (64, 224)
    )
    assert (short.where, long.where) == ("beside", "first")


def test_one_tile_of_a_cluster_is_not_divided():
    amount = Amount.of(8, 8, clusters=66, k_tiles=224, left=75e6)
    assert choose(amount, WINOGRAD, judged=True) == Combining("beside")


def test_sums_of_many_blocks_come_before():
    amount = Amount.of(16, 16, clusters=66, k_tiles=64 * 49, left=3e8)
    assert choose(amount, accumulate(schemes.get("winograd2")), judged=True) == Combining()


def test_of_b_the_first_turn_needs_a_few_columns():
    narrow, wide = (Amount.of(16, n, 66, 448, left=302e6, right=19e6 * n) for n in (16, 56))
    assert narrow.needed == pytest.approx(wide.needed, rel=0.01)


def test_without_a_head_the_planes_of_the_first_products_come_before():
    amount = Amount.of(16, 16, 66, k_tiles=26 * 128, left=2.1e9)
    assert choose(amount, LEAN) == Combining("first", 8, early=12)
    assert choose(Amount.of(8, 8, 66, k_tiles=26 * 64, left=537e6), LEAN).where == "beside"
