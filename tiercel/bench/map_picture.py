"""The crossover map: which algorithm the planner chooses, by M and N·K, on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np

from tiercel.bench.optional import require
from tiercel.bench.picture import RC
from tiercel.planner.plan import Plan
from tiercel.planner.problem import Problem
from tiercel.runtime import plan_for

#: Classical algorithms in grey and blue; schemes from light to dark as they multiply less.
COLOURS = ("#c9d2dc", "#7fa8d1", "#f6c177", "#e5793f", "#c8102e", "#6b1d5e", "#2d4f3c", "#3b8f5a")


def sizes(least: int, most: int, steps: int) -> list[int]:
    """Sizes in equal ratios, whole multiples of 8.

    >>> sizes(64, 1024, 5)
    [64, 128, 256, 512, 1024]
    """
    return [8 * max(1, round(x / 8)) for x in np.geomspace(least, most, steps)]


def plans(
    rows: Sequence[int], squares: Sequence[int], dtype: str, threads: int, **options: Any
) -> list[list[Plan]]:
    """The plan of M × N × K for every M of ``rows`` and N = K of ``squares``; a list for each M."""
    return [
        [plan_for(Problem(M, n, n, dtype, threads=threads, **options)) for n in squares]
        for M in rows
    ]


def write_map(grid: list[list[Plan]], path: Path) -> None:
    """Draw a map of `plans` to ``path`` (png, svg or pdf by its ending)."""
    matplotlib = require("matplotlib", "a picture")
    with matplotlib.rc_context({**RC, "axes.grid": False}):
        _draw(grid).savefig(path, dpi=110)


def algorithms(grid: list[list[Plan]]) -> list[str]:
    """The algorithms chosen anywhere, NumPy first, then from the most accurate on."""
    chosen = {p.chosen.algorithm: p.chosen.growth for row in grid for p in row}
    return sorted(chosen, key=lambda name: (name != "vendor", chosen[name]))


def _draw(grid: list[list[Plan]]) -> Any:
    figure = require("matplotlib.figure", "a picture").Figure((10.5, 4.8), layout="constrained")
    colors = require("matplotlib.colors", "a picture")
    patches = require("matplotlib.patches", "a picture")
    names = algorithms(grid)
    codes = np.array([[names.index(p.chosen.algorithm) for p in row] for row in grid])
    gains = np.array([[p.vendor.seconds / p.chosen.seconds for p in row] for row in grid])
    rows = [row[0].problem.M for row in grid]
    areas = [p.problem.N * p.problem.K for p in grid[0]]
    which, gain = figure.subplots(1, 2, sharey=True)
    palette = [COLOURS[i % len(COLOURS)] for i in range(len(names))]
    which.pcolormesh(areas, rows, codes, cmap=colors.ListedColormap(palette),
                     vmin=-0.5, vmax=len(names) - 0.5, shading="nearest")  # fmt: skip
    which.legend(
        handles=[patches.Patch(color=c, label=n) for c, n in zip(palette, names, strict=True)],
        loc="lower right",
    )
    mesh = gain.pcolormesh(areas, rows, gains, cmap="magma_r", shading="nearest", vmin=1.0)
    figure.colorbar(mesh, ax=gain, label="predicted speed over NumPy")
    for axes in (which, gain):
        axes.set(xscale="log", yscale="log", xlabel="N·K (N = K)")
        axes.set_xticks([n * n for n in _ticks(areas)], [f"{n}²" for n in _ticks(areas)])
        axes.minorticks_off()
    ticks = [M for M in (64, 128, 256, 512, 1024, 2048, 4096, 8192) if rows[0] <= M <= rows[-1]]
    which.set_yticks(ticks, [str(M) for M in ticks])
    which.set_ylabel("M")
    p, machine = grid[0][0].problem, grid[0][0].machine
    title = f"Chosen by the planner: {p.dtype}, {p.threads} of {machine.cores} cores"
    figure.suptitle(f"{title}, {machine.name}", fontweight="bold", fontsize=11)
    return figure


def _ticks(areas: Sequence[int]) -> list[int]:
    ends = isqrt(areas[0]), isqrt(areas[-1])
    return [n for n in (64, 128, 256, 512, 1024, 2048, 4096, 8192) if ends[0] <= n <= ends[1]]
