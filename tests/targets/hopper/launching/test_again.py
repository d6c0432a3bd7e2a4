"""Products that are repeated from addresses alone. Without a GPU: nothing is launched."""

from types import SimpleNamespace

import pytest
import torch

from tiercel.targets.hopper.launching import occupancy
from tiercel.targets.hopper.launching.again import again
from tiercel.targets.hopper.launching.movable import Movable, Ready
from tiercel.targets.hopper.products import product

A, B = torch.ones(32, 64, dtype=torch.bfloat16), torch.ones(64, 48, dtype=torch.bfloat16)


@pytest.fixture
def launched(monkeypatch):
    """Streams of the launches, and where its arrays lay."""
    found = []

    def prepared(a, b, out, *rest):
        def run(stream):
            found.append((stream, list(kept.movable._at)))

        return SimpleNamespace(launches=(), run=run)

    def remember(kept_there, key, ready):
        nonlocal kept
        kept = kept_there[key] = ready
        return ready

    kept: Ready = Ready(None, Movable([], []))
    monkeypatch.setattr(product, "_ready", {})
    monkeypatch.setattr(product, "_prepared", prepared)
    monkeypatch.setattr(product, "remember", remember)
    monkeypatch.setattr(product, "_choice", lambda a, b, out: (None, None))
    monkeypatch.setattr(product, "run", lambda ready, a, stream: ready.run(7))
    return found


def addresses(*arrays):
    return [x.data_ptr() for x in arrays]


def test_it_is_launched_at_the_addresses_of_each_call(launched):
    out = product.gemm(A, B, out=A.new_empty(32, 48))
    repeat = again(A, B, out)
    assert repeat is not None
    x, y = A.clone(), A.new_empty(32, 48)
    assert repeat.run(addresses(x, B, y), 5)
    assert launched == [(7, addresses(A, B, out)), (5, addresses(x, B, y))]


def test_what_has_not_run_or_takes_more_memory_is_not_repeated(launched, monkeypatch):
    out = A.new_empty(32, 48)
    assert again(A, B, out) is None
    monkeypatch.setattr(product, "_choice", lambda a, b, out: (None, (2, 32, 48)))
    assert again(A, B, product.gemm(A, B, out=out)) is None


def test_gemm_looks_again_where_multiprocessors_or_overlaps_have_changed(launched, monkeypatch):
    both = torch.ones(64, 64, dtype=torch.bfloat16)
    repeat = again(both, both.t(), product.gemm(both, both.t(), out=both.new_empty(64, 64)))
    assert repeat is not None
    apart = addresses(both, both.clone(), both.clone())
    assert not repeat.run(apart, 5)
    together = addresses(both.clone(), both, both)
    together[1] = together[0]
    assert repeat.run(together, 5)
    monkeypatch.setattr(occupancy, "most_multiprocessors", 120)
    assert not repeat.run(together, 5)
    assert [stream for stream, _ in launched] == [7, 5]
