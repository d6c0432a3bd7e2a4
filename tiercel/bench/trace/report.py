"""Where the data is, whether the epilogue is hidden, when the tensor cores wait, and for whom."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tiercel.bench.trace.spans import (
    Intervals,
    clipped,
    length,
    spans,
    starved,
    union,
    without,
)
from tiercel.targets.hopper.tracing.recording import Recording

#: Of a CTA's time: tensor cores that lack data for longer than this are held up by the producer.
NOTICED = 0.02


@dataclass(frozen=True)
class Report:
    """Shares of the time of a CTA, averaged over all CTAs, between 0 and 1.

    ``tensor_busy``: cycles that the products need at the tensor cores' full rate. The time without
    a product under way is ``starved`` (data is missing), ``exposed`` (an epilogue runs and nobody
    multiplies), ``turns`` (handing over between tiles) and ``ends`` (before the first product and
    after the last one, its epilogue included). ``hidden``: of the time of epilogues and stores,
    when the other consumer multiplied. ``producer_waits``: the producer waits for an empty stage,
    all others being full or on their way. ``ring``: stages that hold data, or wait for it, on
    average; ``latency``: cycles from the copy of a stage until a consumer that waited for it had
    it, 0 if none waited.
    """

    cycles: float
    tiles: int
    tensor_busy: float
    multiplying: float
    starved: float
    exposed: float
    turns: float
    ends: float
    hidden: float
    producer_waits: float
    ring: float
    stages: int
    latency: float
    partial: bool

    @property
    def bottleneck(self) -> str:
        """What would have to be faster."""
        if self.starved > NOTICED and self.producer_waits < 0.5:
            return "the producer: data comes too late from memory"
        if self.exposed > max(self.starved, NOTICED):
            return "the consumers' epilogue, which nothing hides"
        return "the consumers' products: data waits for them"

    def lines(self) -> list[str]:
        """The four questions and their answers."""
        left_out = " (the first part of it: marks did not fit)" if self.partial else ""
        where = f"{self.ring:.1f} of {self.stages} stages hold or await data"
        if self.latency:
            where += f"; one that is waited for came {self.latency:.0f} cycles after its copy began"
        return [
            f"a CTA takes {self.cycles:.0f} cycles for {self.tiles} tiles{left_out}",
            f"tensor cores busy   {self.tensor_busy:6.1%} of it at their full rate; "
            f"products under way {self.multiplying:.1%}",
            f"where is the data?  {where}",
            f"epilogue hidden?    {self.hidden:6.1%} of it behind the other consumer's products",
            f"tensor cores wait   {self.starved:6.1%} for data, {self.exposed:.1%} for epilogues, "
            f"{self.turns:.1%} between tiles, {self.ends:.1%} at start and end",
            f"producer waits      {self.producer_waits:6.1%} of the time for an empty stage",
            f"bottleneck          {self.bottleneck}",
        ]


def report(recording: Recording) -> Report:
    """The averages over all CTAs that had a tile."""
    found = [_of_cta(recording, cta) for cta in range(len(recording.marks))]
    found = [x for x in found if x is not None]
    counted = ("tiles", "latency", "partial")
    shares = {x: float(np.mean([of[x] for of in found])) for x in found[0] if x not in counted}
    seen = [x["latency"] for x in found if x["latency"] > 0]
    return Report(
        **shares,
        tiles=int(max(x["tiles"] for x in found)),
        stages=recording.of.tile.stages,
        latency=float(np.mean(seen)) if seen else 0.0,
        partial=any(x["partial"] for x in found),
    )


def _of_cta(recording: Recording, cta: int) -> dict[str, float] | None:
    lanes = [recording.lane(cta, group) for group in range(3)]
    producer, *consumers = (spans(recording, cta, group) for group in range(3))
    if not sum(len(x.start) for x in consumers):
        return None
    partial = any(lane.full for lane in lanes)
    end = float(recording.cycles(cta))
    if partial:  # until the first warp group ran out of room
        end = min(float(lane.clock[-1]) for lane in lanes if lane.full)
    multiplying = union(*(clipped(x.of("mainloop"), end) for x in consumers))
    last = float(multiplying[-1, 1]) if len(multiplying) else 0.0
    epilogues = [clipped(union(x.of("epilogue"), x.of("store")), end) for x in consumers]
    stalls = union(*(starved(lane, recording.of.k_tile_cycles) for lane in lanes[1:]))
    idle = without(clipped(stalls, last), multiplying)
    exposed = without(without(clipped(union(*epilogues), last), multiplying), idle)
    active = union(multiplying, idle, exposed)
    ends = active[0, 0] + end - last
    hidden = sum(
        length(own) - length(without(own, clipped(other.of("mainloop"), end)))
        for own, other in zip(epilogues, reversed(consumers), strict=True)
    )
    total = sum(length(x) for x in epilogues)
    cooperative = recording.of.tile.schedule == "cooperative"
    k_tiles = [int((lane.of("want") & (lane.clock < end)).sum()) for lane in lanes[1:]]
    products = max(k_tiles) if cooperative else sum(k_tiles)
    tiles = [int(lane.of("done").sum()) for lane in lanes[1:]]
    return {
        "cycles": end,
        "tiles": max(tiles) if cooperative else sum(tiles),
        "tensor_busy": products * recording.of.k_tile_cycles / end,
        "multiplying": length(multiplying) / end,
        "starved": length(idle) / end,
        "exposed": length(exposed) / end,
        "turns": (end - ends - length(active)) / end,
        "ends": ends / end,
        "hidden": hidden / total if total else 0.0,
        "producer_waits": length(clipped(producer.of("wait"), end)) / end,
        "ring": _ring(recording, cta, end),
        "latency": _latency(recording, cta),
        "partial": float(partial),
    }


def _filled(recording: Recording, cta: int) -> tuple[Intervals, Intervals]:
    """Of each k-tile of a CTA: when its copy began and a consumer had it; when it wanted it."""
    producer = recording.lane(cta, 0)
    issued = producer.clock[producer.of("have")]
    lanes = [recording.lane(cta, group) for group in (1, 2)]
    wants, haves = ([lane.clock[lane.of(name)] for lane in lanes] for name in ("want", "have"))
    if recording.of.tile.schedule == "cooperative":
        count = min(len(issued), *(len(x) for x in haves))
        had = np.maximum(haves[0][:count], haves[1][:count])
        want = np.maximum(wants[0][:count], wants[1][:count])
    else:  # tiles in turns: the k-tiles of consumer 0, then those of consumer 1
        k_tiles = recording.of.k_tiles
        had, want = (_in_turns(x, k_tiles) for x in (haves, wants))
        count = min(len(issued), len(had), len(want))
        had, want = had[:count], want[:count]
    issued = issued[:count]
    return np.stack([issued, had], 1).astype(float), np.stack([want, had], 1).astype(float)


def _in_turns(of_groups: list[np.ndarray], k_tiles: int) -> np.ndarray:
    parts = []
    for i in range(max(-(-len(x) // k_tiles) for x in of_groups)):
        parts += [x[i * k_tiles : (i + 1) * k_tiles] for x in of_groups]
    return np.concatenate(parts) if parts else np.empty(0)


def _ring(recording: Recording, cta: int, end: float) -> float:
    """Stages between the start of their copy and the start of their use, on average."""
    copies, _ = _filled(recording, cta)
    return length(clipped(copies, end)) / end


def _latency(recording: Recording, cta: int) -> float:
    copies, waits = _filled(recording, cta)
    waited = waits[:, 1] - waits[:, 0] > recording.of.k_tile_cycles / 4
    if not waited.any():
        return 0.0
    return float(np.median(copies[waited, 1] - copies[waited, 0]))
