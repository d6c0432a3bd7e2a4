"""Flags that many products share a launch for, without a GPU."""

from itertools import pairwise

import pytest
import torch

from tiercel.targets.hopper.fused import zeroed

LIKE = torch.empty(0)


@pytest.fixture
def cleared(monkeypatch):
    """Words that were zeroed, in order, with their stream."""
    found = []
    monkeypatch.setattr(zeroed, "clear_words", lambda _, *where: found.append(where))
    monkeypatch.setattr(zeroed, "_left", {})
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return found


def take(words, stream=7):
    return zeroed.zeroed(LIKE, words, stream)


def test_one_launch_serves_many_products(cleared):
    taken = [take(1000) for _ in range(zeroed.WORDS // 1024)]
    assert cleared == [(zeroed.WORDS, 7)]
    places = [x.data_ptr() for x in taken]
    assert {b - a for a, b in pairwise(places)} == {4096}
    take(1)
    assert len(cleared) == 2


def test_streams_have_words_of_their_own(cleared):
    first, other = take(1, 7), take(1, 8)
    assert cleared == [(zeroed.WORDS, 7), (zeroed.WORDS, 8)]
    assert first.untyped_storage().data_ptr() != other.untyped_storage().data_ptr()


def test_more_than_one_allocation_holds(cleared):
    assert len(take(zeroed.WORDS + 5)) == zeroed.WORDS + 5
    assert cleared[0][0] >= zeroed.WORDS + 5


def test_a_captured_graph_zeroes_its_own(cleared, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    take(1000)
    take(1000)
    assert cleared == [(1000, 7)] * 2
    assert zeroed._left == {}
