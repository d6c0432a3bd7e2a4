"""The picture: effective GFLOP/s of every library against the machine's measured peak.

One panel per dtype, thread count and group. Squares make lines over n; other shapes make a row of
dots per library. The y axis starts at 0 and ends at 1.3 × the measured multiply-add peak, so that
what is above the peak line is what a scheme saved.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

from tiercel.bench.optional import require
from tiercel.bench.peers import TIERCEL
from tiercel.bench.results import CaseResult, Results
from tiercel.bench.summary import library_names

HEADROOM = 1.3
COLOURS = {
    TIERCEL: "#c8102e",
    "numpy": "#1f5fa8",
    "torch": "#e08a1e",
    "mkl": "#3b8f5a",
    "blis": "#7a5aa6",
    "scipy": "#7d8894",
}
MARKERS = {TIERCEL: "o", "numpy": "s", "torch": "^", "mkl": "D", "blis": "v", "scipy": "P"}
RC = {
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#55606c",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#e3e7ec",
    "svg.fonttype": "none",
    "svg.hashsalt": "tiercel",
}
TICK_CHARACTERS = 44  # that fit under a panel side by side
PanelKey = tuple[str, int, str]


def write_picture(results: Results, path: Path) -> None:
    """Draw ``results`` to ``path`` (png, svg or pdf by its ending)."""
    matplotlib = require("matplotlib", "a picture")
    with matplotlib.rc_context(RC):
        draw(results).savefig(path, dpi=160)


def svg_text(results: Results) -> str:
    """The picture as an ``<svg>`` element for an HTML page."""
    matplotlib = require("matplotlib", "a picture")
    with matplotlib.rc_context(RC), io.StringIO() as buffer:
        draw(results).savefig(buffer, format="svg")
        text = buffer.getvalue()
    return text[text.index("<svg") :]  # without the XML prologue, which HTML does not want


def draw(results: Results) -> Any:
    """The matplotlib figure, on no display and without pyplot's global state."""
    figure_class = require("matplotlib.figure", "a picture").Figure
    panels = panels_of(results.cases)
    columns = 3 if len(panels) in (3, 5, 6) else min(2, len(panels)) or 1
    rows = -(-len(panels) // columns) or 1
    figure = figure_class(figsize=(6.2 * columns, 4.1 * rows + 0.9), layout="constrained")
    widths = [max(2, len(members)) for members in panels.values()] if rows == 1 else None
    grid = figure.subplots(rows, columns, squeeze=False, width_ratios=widths or None)
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    for axes, (key, members) in zip(grid.flat, panels.items(), strict=False):
        _draw_panel(axes, results, key, members)
    figure.suptitle("Matrix product: effective GFLOP/s (2·M·N·K / time)", fontweight="bold")
    if panels:
        _draw_legend(grid.flat[0])
    figure.supxlabel(caption(results), fontsize=8, color="#55606c")
    return figure


def panels_of(cases: Sequence[CaseResult]) -> dict[PanelKey, list[CaseResult]]:
    """Cases by (dtype, threads, group); random shapes have no place on an axis."""
    panels: dict[PanelKey, list[CaseResult]] = {}
    for result in cases:
        case = result.case
        if case.group != "random":
            panels.setdefault((case.dtype, case.threads, case.group), []).append(result)
    return panels


#: Characters in a line of the caption.
CAPTION_COLUMNS = 90


def caption(results: Results) -> str:
    """The machine, the libraries and the date: what a reader needs to place the figures."""
    versions = "; ".join(f"{name} {version}" for name, version in results.libraries.items())
    versions = "\n".join(wrap(versions, CAPTION_COLUMNS))
    machine = results.machine
    head = f"{machine.get('cpu', 'unknown CPU')}, {machine.get('cores', '?')} cores usable"
    return f"{head}, {results.date[:10]}. Medians of interleaved rounds.\n{versions}"


def _draw_panel(axes: Any, results: Results, key: PanelKey, members: list[CaseResult]) -> None:
    dtype, threads, group = key
    members = sorted(members, key=lambda r: (r.case.flops, r.case.label))
    sizes = {r.case.m for r in members if r.case.is_square}
    joined = len(sizes) == len(members)  # a line makes sense over n only
    for library in reversed(library_names(members)):  # tiercel last, on top
        points = [(i, r.gflops(library)) for i, r in enumerate(members)]
        known = [(x, y) for x, y in points if y is not None]
        axes.plot(*zip(*known, strict=True), label=library, **_line_style(library, joined))
    peak = results.peak(members[0].case)
    if peak:
        axes.axhline(peak, color="#222", linewidth=1.1, linestyle=(0, (5, 3)))
        text = f"measured FMA peak {peak:.0f}"
        axes.annotate(text, (0.01, peak), xycoords=("axes fraction", "data"), xytext=(0, 3),
                      textcoords="offset points", fontsize=8.5)  # fmt: skip
    top = max(r.gflops(n) or 0 for r in members for n in library_names(members))
    axes.set_ylim(0, max(HEADROOM * (peak or top), 1.03 * top))
    axes.set_xlim(-0.35, len(members) - 0.65)
    axes.set_xticks(range(len(members)), [_tick(r) for r in members])
    if sum(len(_tick(r)) for r in members) > TICK_CHARACTERS:
        for label in axes.get_xticklabels():
            label.set(rotation=35, ha="right", rotation_mode="anchor", fontsize=8.5)
    prefix = "" if group == "listed" else f"{group}: "
    axes.set_title(f"{prefix}{dtype}, {threads} thread{'s' * (threads > 1)}", loc="left")
    axes.set_ylabel("GFLOP/s")


def _line_style(library: str, joined: bool) -> dict[str, Any]:
    ours = library == TIERCEL
    return {
        "color": COLOURS.get(library, "#55606c"),
        "marker": MARKERS.get(library, "x"),
        "linewidth": (2.8 if ours else 1.2) if joined else 0,
        "markersize": (7 if ours else 5) if joined else (9 if ours else 6),
        "alpha": 1.0 if ours else 0.85,
        "zorder": 5 if ours else 3,
    }


def _draw_legend(axes: Any) -> None:
    """Inside the first panel, at the bottom: rates start well above 0, so that place is free."""
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    names = [n for n in COLOURS if n in handles] + [n for n in handles if n not in COLOURS]
    legend = axes.legend(
        [handles[n] for n in names], names, loc="lower right", ncols=2, framealpha=0.9
    )
    for text in legend.get_texts():
        text.set_fontweight("bold" if text.get_text() == TIERCEL else "normal")


def _tick(result: CaseResult) -> str:
    case = result.case
    return str(case.m) if case.label == f"{case.m}³" else case.label
