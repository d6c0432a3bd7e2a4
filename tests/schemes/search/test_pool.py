"""A pool keeps the two least ranks and survives the disk."""

from pathlib import Path

import numpy as np
import pytest

from tiercel.errors import TiercelValueError
from tiercel.schemes import classical, get
from tiercel.schemes.search import pool as pools
from tiercel.schemes.search.node import Node, from_scheme, pack


def node(scheme) -> Node:
    return pack(scheme.grid, "ternary", from_scheme(scheme))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_higher_ranks_are_forgotten(rng):
    pool = pools.Pool((2, 2, 2), "ternary")
    pool.add(node(classical(2, 2, 2)), rng)
    pool.add(node(get("strassen")), rng)
    assert set(pool.nodes) == {7, 8}
    pool.add(Node((2, 2, 2), "ternary", np.ones((6, 3), np.uint64), np.ones(6, np.int8)), rng)
    assert set(pool.nodes) == {6, 7}
    pool.add(node(classical(2, 2, 2)), rng)
    assert set(pool.nodes) == {6, 7}
    assert pool.least == 6


def test_a_shelf_has_a_capacity(rng, monkeypatch):
    monkeypatch.setattr(pools, "CAPACITY", 3)
    pool = pools.Pool((2, 2, 2), "ternary")
    for _ in range(10):
        pool.add(node(get("strassen")), rng)
    assert len(pool) == 3


def test_disk_round_trip(rng, tmp_path: Path):
    pool = pools.Pool((2, 2, 2), "ternary")
    for scheme in (get("strassen"), get("winograd"), classical(2, 2, 2)):
        pool.add(node(scheme), rng)
    pools.save(pool, tmp_path / "pool.npz")
    back = pools.load(tmp_path / "pool.npz")
    assert (back.grid, back.ring, back.least) == (pool.grid, pool.ring, 7)
    for rank, shelf in pool.nodes.items():
        for got, wanted in zip(back.nodes[rank], shelf, strict=True):
            assert np.array_equal(got.words, wanted.words)
            assert np.array_equal(got.signs, wanted.signs)
    assert [path.name for path in tmp_path.iterdir()] == ["pool.npz"]


@pytest.mark.parametrize("content", [b"", b"nonsense"])
def test_a_damaged_file_is_named(content, tmp_path: Path):
    path = tmp_path / "pool.npz"
    path.write_bytes(content)
    with pytest.raises(TiercelValueError, match=r"pool\.npz.*delete it"):
        pools.load(path)
