"""The ping-pong as a picture: one lane for each warp group of a multiprocessor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tiercel.bench.optional import require
from tiercel.bench.trace.report import report
from tiercel.bench.trace.spans import KINDS, Spans, spans
from tiercel.targets.hopper.tracing.recording import GROUPS, Recording

COLOURS = {
    "load": "#7d8894", "mainloop": "#1f5fa8", "epilogue": "#e08a1e", "store": "#3b8f5a",
    "wait": "#f0d9dc",
}  # fmt: skip
MEANING = {
    "load": "load: copies are issued", "mainloop": "mainloop: the tensor cores multiply",
    "epilogue": "epilogue", "store": "store", "wait": "waiting",
}  # fmt: skip
TILES_SHOWN = 2  # in the close-up, of each consumer


def draw(recordings: list[Recording], file: Path, cta: int = 0) -> None:
    """Write a picture (png, svg, pdf by the name): for each recording the whole run of a CTA, and a
    close-up of some tiles in its middle. Needs matplotlib.
    """
    pyplot = require("matplotlib.pyplot", "the picture of a trace")
    figure, axes = pyplot.subplots(
        2 * len(recordings), 1, figsize=(12, 3.6 * len(recordings)), layout="constrained",
        squeeze=False,
    )  # fmt: skip
    for i, recording in enumerate(recordings):
        lanes = [spans(recording, cta, group) for group in range(len(GROUPS))]
        whole, close = axes[2 * i, 0], axes[2 * i + 1, 0]
        _lanes(whole, lanes, 0.0, float(recording.cycles(cta)))
        _lanes(close, lanes, *_middle(lanes))
        found = report(recording)
        whole.set_title(
            f"{recording.of}\ntensor cores busy {found.tensor_busy:.0%}, epilogue hidden "
            f"{found.hidden:.0%}, waiting for data {found.starved:.1%}",
            loc="left", fontsize=10,
        )  # fmt: skip
        close.set_xlabel("cycles of one multiprocessor", fontsize=9)
    handles = [pyplot.Rectangle((0, 0), 1, 1, color=COLOURS[kind]) for kind in KINDS]
    figure.legend(
        handles, [MEANING[kind] for kind in KINDS], loc="outside lower center", ncols=len(KINDS),
        frameon=False, fontsize=9,
    )  # fmt: skip
    figure.savefig(file, dpi=150)
    pyplot.close(figure)


def _lanes(axis: Any, lanes: list[Spans], start: float, stop: float) -> None:
    for y, lane in enumerate(lanes):
        for kind in ("wait", "load", "mainloop", "epilogue", "store"):
            bars = [(begin, end - begin) for begin, end in lane.of(kind) if end > start]
            bars = [bar for bar in bars if bar[0] < stop]
            axis.broken_barh(bars, (y - 0.4, 0.8), color=COLOURS[kind], linewidth=0)
    axis.set_xlim(start, stop)
    axis.set_yticks(range(len(GROUPS)), GROUPS, fontsize=9)
    axis.invert_yaxis()
    axis.tick_params(length=0, labelsize=9)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)


def _middle(lanes: list[Spans]) -> tuple[float, float]:
    """From one tile of consumer 0 in the middle of its work until some tiles later."""
    tiles = int(lanes[1].tile.max()) + 1 if len(lanes[1].tile) else 0
    first = max(0, tiles // 2 - TILES_SHOWN // 2)
    shown = (lanes[1].tile >= first) & (lanes[1].tile < first + TILES_SHOWN)
    if not shown.any():
        return 0.0, 1.0
    return float(lanes[1].start[shown].min()), float(lanes[1].stop[shown].max())
