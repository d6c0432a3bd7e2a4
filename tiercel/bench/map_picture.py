"""The crossover map: which algorithm the planner chooses, by M and N·K, on one machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np

from tiercel.bench.optional import require
from tiercel.bench.picture import RC
from tiercel.planner.gpu import GpuMachine
from tiercel.planner.plan import Plan

#: The vendor's routine in grey, then from the most accurate on.
COLOURS = (
    "#c9d2dc", "#7fa8d1", "#f6c177", "#e5793f", "#c8102e", "#6b1d5e", "#2d4f3c", "#3b8f5a",
    "#b3d69b", "#1f4e8c", "#e7a1c4", "#8a6d3b",
)  # fmt: skip

TICKS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


def sizes(least: int, most: int, steps: int, multiple: int = 8) -> list[int]:
    """Sizes in equal ratios, whole multiples of ``multiple``.

    >>> sizes(64, 1024, 5)
    [64, 128, 256, 512, 1024]
    """
    spread = np.geomspace(least, most, steps)
    return [multiple * max(1, round(x / multiple)) for x in spread]


def write_map(grid: list[list[Plan]], path: Path) -> None:
    """Draw a map to ``path`` (png, svg or pdf by its ending).

    ``grid``: the plans of M × N × K, a list for each M with one for each N = K.
    """
    matplotlib = require("matplotlib", "a picture")
    with matplotlib.rc_context({**RC, "axes.grid": False}):
        _draw(grid).savefig(path, dpi=110)


def algorithms(grid: list[list[Plan]]) -> list[str]:
    """The algorithms chosen anywhere, the vendor's first, then from the most accurate on.

    All orders of a scheme's grid are one algorithm here.
    """
    chosen = {family(p.chosen.algorithm): p.chosen.growth for row in grid for p in row}
    return sorted(chosen, key=lambda name: (name != "vendor", chosen[name]))


def family(algorithm: str) -> str:
    """The algorithm's name with its grid in rising order.

    >>> family("strassen*lean-4x5x3")
    'strassen*lean-3x4x5'
    """
    return re.sub(r"\d+(x\d+)+", lambda grid: "x".join(sorted(grid[0].split("x"))), algorithm)


def _draw(grid: list[list[Plan]]) -> Any:
    figure = require("matplotlib.figure", "a picture").Figure((10.5, 4.8), layout="constrained")
    colors = require("matplotlib.colors", "a picture")
    patches = require("matplotlib.patches", "a picture")
    names = algorithms(grid)
    codes = np.array([[names.index(family(p.chosen.algorithm)) for p in row] for row in grid])
    gains = np.array([[p.vendor.seconds / p.chosen.seconds for p in row] for row in grid])
    rows = [row[0].problem.M for row in grid]
    areas = [p.problem.N * p.problem.K for p in grid[0]]
    which, gain = figure.subplots(1, 2, sharey=True)
    palette = [COLOURS[i % len(COLOURS)] for i in range(len(names))]
    which.pcolormesh(areas, rows, codes, cmap=colors.ListedColormap(palette),
                     vmin=-0.5, vmax=len(names) - 0.5, shading="nearest")  # fmt: skip
    figure.legend(
        handles=[patches.Patch(color=c, label=n) for c, n in zip(palette, names, strict=True)],
        loc="outside lower center", ncols=6,
    )  # fmt: skip
    mesh = gain.pcolormesh(areas, rows, gains, cmap="magma_r", shading="nearest", vmin=1.0)
    figure.colorbar(mesh, ax=gain, label=f"predicted speed over {_vendor(grid)}")
    for axes in (which, gain):
        axes.set(xscale="log", yscale="log", xlabel="N·K (N = K)")
        axes.set_xticks([n * n for n in _ticks(areas)], [f"{n}²" for n in _ticks(areas)])
        axes.minorticks_off()
    ticks = [M for M in TICKS if rows[0] <= M <= rows[-1]]
    which.set_yticks(ticks, [str(M) for M in ticks])
    which.set_ylabel("M")
    figure.suptitle(f"Chosen by the planner: {_place(grid)}", fontweight="bold", fontsize=11)
    return figure


def _place(grid: list[list[Plan]]) -> str:
    plan = grid[0][0]
    p, machine = plan.problem, plan.machine
    packed = ", B packed" if p.static_b else ""
    if isinstance(machine, GpuMachine):
        return f"{p.dtype}{packed}, {machine.name}"
    return f"{p.dtype}{packed}, {p.threads} of {machine.cores} cores, {machine.name}"


def _vendor(grid: list[list[Plan]]) -> str:
    return "PyTorch" if isinstance(grid[0][0].machine, GpuMachine) else "NumPy"


def _ticks(areas: Sequence[int]) -> list[int]:
    ends = isqrt(areas[0]), isqrt(areas[-1])
    return [n for n in TICKS if ends[0] <= n <= ends[1]]
