"""Timestamps → what each warp group did from when to when."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tiercel.targets.hopper.tracing.recording import GROUPS, MARKS, Lane, Recording

#: Kinds of spans. ``load``: the producer issues copies; ``mainloop``: products are being multiplied
#: for a tile; ``epilogue``: arithmetic; ``store``: staging and the copy to memory; ``wait``: for a
#: stage, a turn, staging memory, or data that the tensor cores have run out of.
KINDS = ("load", "mainloop", "epilogue", "store", "wait")

Intervals = NDArray[np.float64]  # (n, 2): from, to


@dataclass(frozen=True)
class Spans:
    """Spans of one warp group in the order of time, in cycles of its multiprocessor.

    ``kind``: index into `KINDS`; ``tile``: how many tiles came before.
    """

    start: NDArray[np.float64]
    stop: NDArray[np.float64]
    kind: NDArray[np.uint8]
    tile: NDArray[np.int32]

    def of(self, kind: str) -> Intervals:
        """The intervals of one kind."""
        chosen = self.kind == KINDS.index(kind)
        return np.stack([self.start[chosen], self.stop[chosen]], 1)


def spans(recording: Recording, cta: int, group: int) -> Spans:
    """The spans of a warp group of a CTA."""
    lane = recording.lane(cta, group)
    if GROUPS[group] == "producer":
        return _producer(lane)
    return _consumer(lane, recording.of.k_tile_cycles)


def _producer(lane: Lane) -> Spans:
    """want → have: waits for an empty stage; have → the next want: loads."""
    waits = _between(lane, "want", "have")
    loads = np.stack([waits[:-1, 1], waits[1:, 0]], 1)
    tile = np.cumsum(lane.value[lane.of("want")] == 0) - 1
    return _sorted([("wait", waits, tile[: len(waits)]), ("load", loads, tile[: len(loads)])])


def _consumer(lane: Lane, k_tile_cycles: float) -> Spans:
    """A tile: turn → row … drain → epilogue (free → fill → sent)* → done."""
    ends = np.flatnonzero(lane.of("done"))
    parts: list[tuple[str, Intervals, NDArray[np.int64]]] = []
    begin = 0
    for number, end in enumerate(ends):
        part = slice(begin, end + 1)
        of = Lane(lane.clock[part], lane.mark[part], lane.value[part])
        begin = end + 1
        for kind, found in _tile(of, k_tile_cycles):
            parts.append((kind, found, np.full(len(found), number)))
    return _sorted(parts)


def _tile(lane: Lane, k_tile_cycles: float) -> list[tuple[str, Intervals]]:
    turn, row = _at(lane, "turn"), _at(lane, "row")
    epilogue, done = _at(lane, "epilogue"), _at(lane, "done")
    stalls = starved(lane, k_tile_cycles)
    free, fill, sent = (
        lane.clock[lane.of(name)].astype(float) for name in ("free", "fill", "sent")
    )
    store = np.stack([fill, sent], 1)
    blocked = np.stack([free, fill], 1)
    busy = np.concatenate([[epilogue], sent]), np.concatenate([free, [done]])
    return [
        ("wait", np.array([[turn, row]])),
        ("mainloop", without(np.array([[row, epilogue]]), stalls)),
        ("wait", stalls),
        ("epilogue", np.stack(busy, 1)),
        ("wait", blocked),
        ("store", store),
    ]


def starved(lane: Lane, k_tile_cycles: float) -> Intervals:
    """When the tensor cores had nothing to do because a stage was not full.

    A warp group that waits for a stage has the previous k-tile still being multiplied, so only
    what goes beyond its time counts; for the first k-tile of a tile, all.
    """
    waits = _between(lane, "want", "have")
    first = lane.value[lane.of("want")][: len(waits)] == 0
    begin = np.minimum(waits[:, 0] + np.where(first, 0.0, k_tile_cycles), waits[:, 1])
    found = np.stack([begin, waits[:, 1]], 1)
    return found[found[:, 1] > found[:, 0]]


def _between(lane: Lane, name: str, until: str) -> Intervals:
    """From each mark of a name to the next of another one, which follows it at once."""
    found = np.flatnonzero(lane.of(name))
    found = found[found + 1 < len(lane.mark)]
    found = found[lane.mark[found + 1] == MARKS.index(until)]
    return np.stack([lane.clock[found], lane.clock[found + 1]], 1).astype(float)


def _at(lane: Lane, name: str) -> float:
    """The clock at the only mark of a name in a tile."""
    return float(lane.clock[lane.of(name)][0])


def _sorted(parts: list[tuple[str, Intervals, NDArray[np.int64]]]) -> Spans:
    if not parts:
        return Spans(np.empty(0), np.empty(0), np.empty(0, np.uint8), np.empty(0, np.int32))
    found = np.concatenate([found for _, found, _ in parts])
    kind = np.concatenate([np.full(len(found), KINDS.index(kind)) for kind, found, _ in parts])
    tile = np.concatenate([tile for *_, tile in parts])
    order = np.argsort(found[:, 0], kind="stable")
    order = order[found[order, 1] > found[order, 0]]
    return Spans(
        found[order, 0],
        found[order, 1],
        kind[order].astype(np.uint8),
        tile[order].astype(np.int32),
    )


# ---- Sets of intervals -------------------------------------------------------------------------


def union(*sets: Intervals) -> Intervals:
    """What any of the intervals covers, without overlaps.

    >>> union(np.array([[0.0, 2.0], [5.0, 6.0]]), np.array([[1.0, 3.0]])).tolist()
    [[0.0, 3.0], [5.0, 6.0]]
    """
    every = np.concatenate([x.reshape(-1, 2) for x in sets])
    every = every[np.argsort(every[:, 0])]
    merged: list[list[float]] = []
    for start, stop in every.tolist():
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], stop)
        else:
            merged.append([start, stop])
    return np.array(merged).reshape(-1, 2)


def without(whole: Intervals, holes: Intervals) -> Intervals:
    """The intervals less what others cover.

    >>> without(np.array([[0.0, 9.0]]), np.array([[2.0, 3.0], [8.0, 9.5]])).tolist()
    [[0.0, 2.0], [3.0, 8.0]]
    """
    holes = union(holes) if len(holes) else holes
    left: list[tuple[float, float]] = []
    for start, stop in whole.tolist():
        inside = holes[(holes[:, 1] > start) & (holes[:, 0] < stop)] if len(holes) else holes
        for begin, end in inside.tolist():
            left.append((start, begin))
            start = max(start, end)
        left.append((start, stop))
    return np.array([x for x in left if x[1] > x[0]]).reshape(-1, 2)


def length(intervals: Intervals) -> float:
    """Cycles that the intervals cover, which must not overlap."""
    return float((intervals[:, 1] - intervals[:, 0]).sum()) if len(intervals) else 0.0


def clipped(intervals: Intervals, stop: float) -> Intervals:
    """The part of the intervals before a moment."""
    kept = intervals[intervals[:, 0] < stop]
    return np.stack([kept[:, 0], np.minimum(kept[:, 1], stop)], 1)
