"""The shared last turn, on paper: a model of the walk that ``kernels/stream_k.cuh`` makes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiercel.targets.hopper.config import Config
from tiercel.targets.hopper.products import heuristic, stream_k
from tiercel.targets.hopper.products.params import Params
from tiercel.targets.hopper.products.stream_k import Shares

PLAIN = Config(heuristic.CANDIDATES[0], "bfloat16", "bfloat16", False, False)


def walk(tiles: int, clusters: int, k_tiles: int, shares: Shares):
    """Of each piece of work: tile, first k-tile, k-tiles, slots given to, slots added."""
    rest, helpers = k_tiles - shares.own, clusters - shares.owners
    line, full = shares.owners * rest, tiles - shares.owners
    for cluster in range(clusters):
        logical = (cluster + shares.owners) % clusters
        for tile in range(logical, full, clusters):
            yield tile, 0, k_tiles, (), ()
        if cluster >= helpers:
            first = logical * rest // shares.each
            last = ((logical + 1) * rest - 1) // shares.each
            yield full + logical, 0, shares.own, (), range(logical + first, logical + last + 1)
            continue
        at, end = (min((cluster + i) * shares.each, line) for i in (0, 1))
        while at < end:
            count = min(rest - at % rest, end - at)
            slot = at // rest + at // shares.each
            yield full + at // rest, shares.own + at % rest, count, (slot,), ()
            at += count


@given(st.integers(2, 70), st.integers(1, 5), st.data(), st.integers(12, 300))
@settings(max_examples=300, deadline=None)
def test_every_k_tile_is_multiplied_once_and_every_sum_added_once(clusters, turns, data, k_tiles):
    tiles = turns * clusters + data.draw(st.integers(1, clusters - 1))
    shares = stream_k.shares(tiles, clusters, k_tiles)
    if shares is None:
        return
    parts, given_, added = defaultdict(list), [], []
    for tile, first, length, gives, adds in walk(tiles, clusters, k_tiles, shares):
        parts[tile].append((first, first + length))
        given_.extend((slot, tile) for slot in gives)
        added.extend((slot, tile) for slot in adds)
    for tile in range(tiles):
        ends = sorted(parts[tile])
        assert ends[0][0] == 0
        assert ends[-1][1] == k_tiles
        assert all(a[1] == b[0] for a, b in pairwise(ends))
    assert sorted(given_) == sorted(added)
    assert len({slot for slot, _ in given_}) == len(given_)
    assert max(slot for slot, _ in given_) < clusters
    assert shares.own >= stream_k.LEAST_OWN


@pytest.mark.parametrize(("tiles", "k_tiles"), [(66, 64), (132, 64), (65, 400), (100, 8)], ids=str)
def test_nothing_is_shared_where_nothing_is_gained(tiles: int, k_tiles: int):
    assert stream_k.shares(tiles, 66, k_tiles) is None


def test_the_division_that_is_estimated_ends_with_owners_and_helpers_together():
    shares = stream_k.shares(1024, 66, 448)  # 8192 x 8192 x 28672: 34 tiles for 66 clusters
    assert shares is not None
    assert shares.owners == 34
    assert abs(shares.own - shares.each) < 20
    assert 0.4 * 448 < shares.saved < 448 * 32 / 66


def test_only_cooperative_tiles_of_one_block_are_shared():
    assert stream_k.possible(PLAIN.tile)
    for tile in (heuristic.CANDIDATES[1], heuristic.LARGE, heuristic.PLAIN[0]):
        assert not stream_k.possible(tile)
    blocks = Params(
        maps=(), block_rows=0, block_columns=0, tile_columns=0, k_tiles=128, cluster_rows=32,
        cluster_columns=32, batches=1, group=0, a_batch_step=0, b_batch_step=0, alpha=1, beta=0,
    )  # fmt: skip
    assert stream_k.division(PLAIN, blocks, 132) == stream_k.shares(1024, 66, 128)
    assert stream_k.division(replace(PLAIN, traced=True), blocks, 132) is None
