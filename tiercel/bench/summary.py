"""What a list of results says in a few numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tiercel.bench.peers import TIERCEL
from tiercel.bench.results import CaseResult

COUNTED_FROM_SECONDS = 1e-3  # shorter calls are judged by call overhead instead


@dataclass(frozen=True)
class RatioSummary:
    """Ratios to the best peer over the cases in which it takes at least 1 ms beside tiercel."""

    count: int
    median: float
    worst: float
    worst_label: str


def summarise_ratios(results: Sequence[CaseResult]) -> RatioSummary | None:
    """Median and worst ratio, or None if no case is long enough to count."""
    counted = [(r.ratio.median, r.case.label) for r in results if r.ratio and _is_long(r)]
    if not counted:
        return None
    worst, label = min(counted)
    return RatioSummary(len(counted), float(np.median([x for x, _ in counted])), worst, label)


def bars_met(results: Sequence[CaseResult]) -> tuple[int, int]:
    """How many bars were met, and how many were judged."""
    verdicts = [r.meets_bar for r in results if r.meets_bar is not None]
    return sum(verdicts), len(verdicts)


def by_group(results: Sequence[CaseResult]) -> dict[str, list[CaseResult]]:
    """Results in the order of their groups' first appearance."""
    groups: dict[str, list[CaseResult]] = {}
    for result in results:
        groups.setdefault(result.case.group, []).append(result)
    return groups


def library_names(results: Sequence[CaseResult]) -> list[str]:
    """All libraries that appear, tiercel first."""
    names = dict.fromkeys(t.library for r in results for t in r.timings)
    return [n for n in names if n == TIERCEL] + [n for n in names if n != TIERCEL]


def _is_long(result: CaseResult) -> bool:
    # By the ratio: NumPy's threads, woken after a pause, took 8 ms for products of 0.02 ms.
    best, own = result.best_peer, result.of(TIERCEL)
    if best is None or best.ratio is None or own is None:
        return False
    return own.seconds.median * best.ratio.median >= COUNTED_FROM_SECONDS
