"""The scatter plot of predicted against measured times, one dot per candidate of a product."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tiercel.bench.optional import require
from tiercel.bench.picture import RC
from tiercel.planner.winners import Measured

COLOURS = {
    "vendor": "#1f5fa8",
    "classical": "#7d8894",
    "strassen": "#e08a1e",
    "strassen2": "#c8102e",
    "strassen3": "#7a5aa6",
    "winograd": "#3b8f5a",
    "other schemes": "#b3d69b",
}
OTHERS = "other schemes"


def write_prediction_picture(measured: Sequence[Measured], title: str, path: Path) -> None:
    """Draw to ``path`` (png, svg or pdf by its ending)."""
    matplotlib = require("matplotlib", "a picture")
    with matplotlib.rc_context({**RC, "axes.grid.axis": "both"}):
        _draw(measured, title).savefig(path, dpi=110)


def _draw(measured: Sequence[Measured], title: str) -> Any:
    figure = require("matplotlib.figure", "a picture").Figure(
        figsize=(10.5, 4.6), layout="constrained"
    )
    times, ratios = figure.subplots(1, 2)
    pairs: dict[str, list[tuple[float, float]]] = {name: [] for name in COLOURS}
    for m in measured:
        for name, seconds in m.seconds.items():
            label = name if name in COLOURS else OTHERS
            pairs[label].append((1e3 * seconds, 1e3 * m.predicted[name]))
    for label, points in pairs.items():
        if points:
            x, y = zip(*points, strict=True)
            style = {"s": 16, "alpha": 0.8, "color": COLOURS[label], "linewidths": 0}
            times.scatter(x, y, label=label, **style)
            ratios.scatter(x, [q / p for p, q in points], **style)
    ends = [1e3 * f(m.seconds.values()) for m in measured for f in (min, max)]
    span = [0.8 * min(ends), 1.25 * max(ends)]
    times.plot(span, span, color="#222", linewidth=0.8)
    times.set(xscale="log", yscale="log", xlim=span, ylim=span, ylabel="predicted ms")
    times.legend(frameon=False)
    ratios.axhspan(0.9, 1.1, color="#e3e7ec", zorder=0)
    ratios.axhline(1, color="#222", linewidth=0.8)
    ratios.set(xscale="log", xlim=span, ylabel="predicted / measured")
    for axes in (times, ratios):
        axes.set_xlabel("measured ms")
    figure.suptitle(title, fontweight="bold")
    return figure
