"""The catalogue in one picture: what each scheme saves against what its rounding errors grow by."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod, sqrt
from pathlib import Path
from typing import Any

from tiercel.bench.optional import require
from tiercel.bench.peers import TIERCEL
from tiercel.bench.picture import COLOURS, RC
from tiercel.schemes import Scheme, rms_growth
from tiercel.schemes.marks import MARKS

OURS, PUBLISHED = COLOURS[TIERCEL], COLOURS["scipy"]


def write_scheme_picture(schemes: Sequence[Scheme], path: Path) -> None:
    """Draw schemes of sizes 2 to 5 and the published marks to ``path`` (png, svg or pdf)."""
    matplotlib = require("matplotlib", "a picture")
    with matplotlib.rc_context(RC):
        draw(schemes).savefig(path, dpi=160)


def draw(schemes: Sequence[Scheme]) -> Any:
    """The matplotlib figure: a dot per scheme, a ring per mark, the most accurate ones named."""
    figure_class = require("matplotlib.figure", "a picture").Figure
    figure = figure_class(figsize=(10.4, 5.8), layout="constrained")
    axes = figure.subplots()
    drawn = [x for x in schemes if max(x.grid) <= 5]
    points = [(_saved(x.grid, x.rank), rms_growth(x)) for x in drawn]
    marks = [(_saved(grid, x.rank), sqrt(x.phi / prod(grid))) for grid, x in MARKS.items()]
    for dots, label, style in (
        (marks, "published mark", {"mfc": "none", "mec": PUBLISHED, "ms": 10}),
        (points, "tiercel's catalogue", {"color": OURS, "ms": 5}),
    ):
        axes.plot(*zip(*dots, strict=True), "o", label=label, **style)
    for point, label in _labels(drawn, points).items():
        axes.annotate(label, point, xytext=(5, -9), textcoords="offset points", fontsize=7)
    axes.set_yscale("log")
    axes.set_yticks([1.5, 2, 3, 4, 6, 8], ["1.5", "2", "3", "4", "6", "8"])
    axes.minorticks_off()
    axes.set_xlabel("multiplications saved, 100·(1 − R / mkn)")
    axes.set_ylabel("expected error over the classical product's, √(Φ / mkn)")
    axes.set_title(
        "Schemes of sizes 2 to 5: saving against accuracy", loc="left", fontweight="bold"
    )
    axes.legend(frameon=False, loc="upper left")
    return figure


def _saved(grid: tuple[int, int, int], rank: int) -> float:
    return 100 * (1 - rank / prod(grid))


def _labels(
    schemes: Sequence[Scheme], points: Sequence[tuple[float, float]]
) -> dict[tuple[float, float], str]:
    """The grids at the most accurate point of each, orders taken together."""
    best: dict[tuple[int, ...], tuple[float, float]] = {}
    for scheme, point in zip(schemes, points, strict=True):
        grid = tuple(sorted(scheme.grid))
        if grid not in best or point[1] < best[grid][1]:
            best[grid] = point
    labels: dict[tuple[float, float], str] = {}
    for grid, point in best.items():
        text = "×".join(map(str, grid))
        labels[point] = f"{labels[point]}, {text}" if point in labels else text
    return labels
