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
}
OTHERS = "#3b8f5a"


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
    found = {x for m in measured for x in m.seconds}
    names = [*(x for x in COLOURS if x in found), *sorted(found - COLOURS.keys())]
    for name in names:
        pairs = [(m.seconds[name], m.predicted[name]) for m in measured if name in m.seconds]
        x = [1e3 * seconds for seconds, _ in pairs]
        style = {"s": 16, "alpha": 0.8, "color": COLOURS.get(name, OTHERS), "linewidths": 0}
        times.scatter(x, [1e3 * predicted for _, predicted in pairs], label=name, **style)
        ratios.scatter(x, [p / s for s, p in pairs], **style)
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
