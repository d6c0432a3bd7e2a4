import random
import time

import pytest

from tiercel.bench.timing import (
    Turn,
    interleave,
    paired_ratios,
    paired_spreads,
    plan_turn,
    take_pairs,
    take_turn,
    warm_up,
)


def test_every_player_has_one_turn_per_round():
    log: list[str] = []

    def player(name: str):
        return lambda: log.append(name) or 1.0

    players = {name: player(name) for name in "abc"}
    times = interleave(players, deadline=0, order=random.Random(0), min_rounds=20)
    assert {len(own) for own in times.values()} == {20}
    rounds = [log[i : i + 3] for i in range(0, len(log), 3)]
    assert all(sorted(one) == ["a", "b", "c"] for one in rounds)
    assert len({tuple(one) for one in rounds}) > 1  # the order is shuffled


def test_pairs_alternate_their_order():
    log: list[str] = []
    a, b = take_pairs(lambda: log.append("a"), lambda: log.append("b"), Turn(1, 1, 0))
    assert len(a) == len(b) >= 15
    assert log[2:8] == ["a", "b", "b", "a", "a", "b"]  # after one unrecorded turn of each


def test_pairs_end_when_their_ratio_is_known_or_time_is_up(monkeypatch: pytest.MonkeyPatch):
    def pairs() -> int:
        return len(take_pairs(lambda: time.sleep(2e-3), lambda: time.sleep(2e-3), Turn(1, 1, 0))[0])

    monkeypatch.setattr("tiercel.bench.timing.PAIRS_KNOWN", 1e9)
    assert pairs() == 15
    monkeypatch.setattr("tiercel.bench.timing.PAIRS_KNOWN", 0.0)
    monkeypatch.setattr("tiercel.bench.timing.PAIRS_SECONDS", 0.2)
    assert 15 < pairs() < 60
    monkeypatch.setattr("tiercel.bench.timing.PAIRS_SECONDS", 0.0)
    assert pairs() == 3


def test_rounds_end_at_the_deadline_or_the_maximum():
    def sleepy() -> float:
        time.sleep(0.02)
        return 1.0

    players = {"sleepy": sleepy}
    order = random.Random(0)
    soon = time.monotonic() + 0.1
    assert 3 <= len(interleave(players, deadline=soon, order=order)["sleepy"]) <= 6
    later = time.monotonic() + 60
    assert len(interleave(players, deadline=later, order=order, max_rounds=4)["sleepy"]) == 4


def test_no_player_no_time():
    assert interleave({}, deadline=0, order=random.Random(0)) == {}


@pytest.mark.parametrize("seconds", [0.0, 1e-7, 1e-5, 1e-3, 0.02, 0.09])
def test_turn_of_a_short_call_is_warm_and_bounded(seconds: float):
    turn = plan_turn(seconds)
    assert turn.warmup >= 1
    assert turn.samples * turn.calls * seconds < 0.1


def test_take_turn_returns_seconds_per_call():
    calls = []
    seconds = take_turn(lambda: calls.append(time.sleep(0.001)), Turn(samples=3, calls=2, warmup=1))
    assert len(calls) == 7
    assert 0.001 <= seconds < 0.01


def test_warm_up_repeats_short_calls_only():
    calls = []
    warm_up(lambda: calls.append(None))
    assert len(calls) == 5


def test_ratios_are_paired_within_rounds():
    # the machine halves its clock in round 2: times jump, ratios do not
    ratios = paired_ratios([1.2, 2.4, 1.2], [1.0, 2.0, 1.0])
    assert ratios.p25 == pytest.approx(1.2)
    assert ratios.p75 == pytest.approx(1.2)


def test_what_a_round_has_in_common_is_divided_out():
    slow = [1.0, 1.3, 0.9, 2.0, 1.0]
    times = {name: [x * y for y in slow] for name, x in (("a", 1.0), ("b", 1.2), ("c", 3.0))}
    times["b"][2] *= 5  # a disturbance of one player's turn
    found = paired_spreads(times)
    assert found["b"].median / found["a"].median == pytest.approx(1.2)
    assert found["a"].p75 == pytest.approx(found["a"].p25)
    assert found["a"].median == pytest.approx(1.0)
