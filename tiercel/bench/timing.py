"""From single calls to a figure: paired, interleaved rounds; medians and quartiles.

Clocks and shared caches wander by 10 % within seconds. Two libraries measured one after the other
therefore differ by luck; measured in turn, in an order shuffled each round, both see the same luck,
and the median of the ratios *within* rounds is steady where the times are not.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

TURN_SECONDS = 0.02  # long enough to leave the first cold call behind
SAMPLE_SECONDS = 2e-4  # far above the clock's resolution and the cost of reading it
WARMUP_SECONDS = 5e-3  # caches and branch predictors after a switch of process: 1 call is too few
WARMUP_BELOW_SECONDS = 0.1  # longer calls lose < 1 % to cold caches
MAX_SAMPLES = 15
MIN_ROUNDS = 3
MAX_ROUNDS = 25
PAIRS, PAIRS_SECONDS = (15, 400), 8.0  # least and most pairs within one process
PAIRS_KNOWN = 0.003  # standard error of the median of their ratios at which they end


@dataclass(frozen=True)
class Turn:
    """One library's turn: ``warmup`` untimed calls, then ``samples`` timings of ``calls`` calls."""

    samples: int
    calls: int
    warmup: int


@dataclass(frozen=True)
class Spread:
    """Quartiles of repeated measurements."""

    p25: float
    median: float
    p75: float


def plan_turn(seconds_per_call: float) -> Turn:
    """A turn of about 20 ms, or one call if that takes longer.

    >>> plan_turn(1.0)
    Turn(samples=1, calls=1, warmup=0)
    """
    seconds = max(seconds_per_call, 1e-7)
    calls = math.ceil(SAMPLE_SECONDS / seconds)
    samples = min(max(int(TURN_SECONDS / (calls * seconds)), 1), MAX_SAMPLES)
    warmup = math.ceil(WARMUP_SECONDS / seconds) if seconds < WARMUP_BELOW_SECONDS else 0
    return Turn(samples, calls, warmup)


def take_turn(call: Callable[[], object], turn: Turn) -> float:
    """Median seconds per call."""
    for _ in range(turn.warmup):
        call()
    samples = []
    for _ in range(turn.samples):
        start = time.perf_counter()
        for _ in range(turn.calls):
            call()
        samples.append((time.perf_counter() - start) / turn.calls)
    return float(np.median(samples))


def take_pairs(
    first: Callable[[], object], second: Callable[[], object], turn: Turn
) -> tuple[list[float], list[float]]:
    """Seconds per call of both, sample by sample in turns, whose order alternates.

    Ends when the median of the ratios is known to 0.3 %, after 8 s at the latest.
    """
    single = Turn(samples=1, calls=turn.calls, warmup=0)
    take_turn(first, turn)
    take_turn(second, turn)
    times: tuple[list[float], list[float]] = ([], [])
    deadline = time.monotonic() + PAIRS_SECONDS
    for number in range(PAIRS[1]):
        if number >= MIN_ROUNDS and time.monotonic() > deadline:
            break
        if number >= PAIRS[0] and error_of_median(paired_ratios(*times), number) < PAIRS_KNOWN:
            break
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            times[which].append(take_turn((first, second)[which], single))
    return times


def error_of_median(values: Spread, count: int) -> float:
    """Standard error of the median of so many normal values: 1.25 σ / √n, σ = quartiles / 1.35."""
    return 0.93 * (values.p75 - values.p25) / math.sqrt(count)


def warm_up(call: Callable[[], object]) -> float:
    """Seconds of a call once compilation and first-touch are over: 1 to 5 calls, about 0.2 s."""
    spent = 0.0
    for calls in range(1, 6):
        start = time.perf_counter()
        call()
        last = time.perf_counter() - start
        spent += last
        if last > 2.0 or (calls >= 2 and spent > 0.2):
            break
    return last


def interleave(
    players: Mapping[str, Callable[[], float]],
    *,
    deadline: float,
    order: random.Random,
    min_rounds: int = MIN_ROUNDS,
    max_rounds: int = MAX_ROUNDS,
    on_round: Callable[[int], None] = lambda number: None,
) -> dict[str, list[float]]:
    """Rounds in which every player has one turn, until ``deadline`` on `time.monotonic`.

    A round is begun only if one as long as the last fits, but at least ``min_rounds`` are played.
    Returns each player's seconds per call, one per round; entry i of all lists is the same round.
    """
    times: dict[str, list[float]] = {name: [] for name in players}
    last = 0.0
    for number in range(max_rounds):
        start = time.monotonic()
        if number >= min_rounds and start + last > deadline:
            break
        for name in order.sample(sorted(players), len(players)):
            times[name].append(players[name]())
        last = time.monotonic() - start
        on_round(number + 1)
    return times


def spread(values: Sequence[float]) -> Spread:
    """Quartiles of ``values``.

    >>> spread([3.0, 1.0, 2.0])
    Spread(p25=1.5, median=2.0, p75=2.5)
    """
    p25, median, p75 = np.percentile(np.asarray(values, dtype=float), [25, 50, 75])
    return Spread(float(p25), float(median), float(p75))


def paired_spreads(times: Mapping[str, Sequence[float]]) -> dict[str, Spread]:
    """Quartiles of each player's times, without what all players of a round have in common.

    That is how far a round is from usual: the median over players of log(time / own median).
    ``times``: of `interleave`.

    >>> found = paired_spreads({"a": [1.0, 4.0, 1.0], "b": [2.0, 8.0, 2.0]})["b"]
    >>> round(found.p75 / found.p25, 6), round(found.median, 6)
    (1.0, 2.0)
    """
    logs = {name: np.log(np.asarray(values, dtype=float)) for name, values in times.items()}
    common = np.median([values - np.median(values) for values in logs.values()], axis=0)
    found = {}
    for name, values in logs.items():
        p25, median, p75 = np.exp(np.percentile(values - common, [25, 50, 75]))
        found[name] = Spread(float(p25), float(median), float(p75))
    return found


def paired_ratios(times: Sequence[float], baseline: Sequence[float]) -> Spread:
    """Quartiles of ``times[i] / baseline[i]``: above 1 where the baseline was faster."""
    return spread([t / b for t, b in zip(times, baseline, strict=True)])
