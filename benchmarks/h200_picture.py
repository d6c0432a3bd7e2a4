"""Draws docs/h200.png from the results of h200_gemm.py and h200_portable.py.

Usage: python benchmarks/h200_picture.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
#: NVIDIA's data sheet of the H200, dense products, TFLOP/s.
DATA_SHEET = {"bfloat16": 989, "float32": 67, "float64": 67}
GREY, LIGHT, DARK = "#9aa0a6", "#7fb3d5", "#1a5276"


def main() -> None:
    """Read both results, draw three panels."""
    figure, axes = plt.subplots(1, 3, figsize=(13, 4.2), width_ratios=(6, 4, 4), dpi=110)
    _fused(axes[0])
    for axis, dtype in zip(axes[1:], ("float32", "float64"), strict=True):
        _portable(axis, dtype)
    figure.suptitle("NVIDIA H200, sustained: each library alone and hot, additions included")
    figure.tight_layout()
    figure.savefig(ROOT / "docs" / "h200.png", metadata={"Software": None})


def _fused(axis: Axes) -> None:
    """bfloat16, B static: cuBLAS, the plain kernel, the better of the two ways to sum A."""
    run = next(run for run in _read("h200-gemm.json")["runs"] if run.get("fused"))
    rows = run["fused"]
    vendor = [row["vendor_tflops"]["sustained"] for row in rows]
    ratios = {
        "plain": [_sustained(row, "gemm") for row in rows],
        "fused": [max(_sustained(row, way) for way in ("before", "inside")) for row in rows],
    }
    rates = {name: [v * r for v, r in zip(vendor, of, strict=True)] for name, of in ratios.items()}
    series = [
        Bars("cuBLAS", GREY, vendor, None),
        Bars("tiercel, plain", LIGHT, rates["plain"], ratios["plain"]),
        Bars("tiercel, Winograd in the kernel", DARK, rates["fused"], ratios["fused"]),
    ]
    _draw(axis, [_name(*row["shape"]) for row in rows], "bfloat16", series)


def _portable(axis: Axes, dtype: str) -> None:
    """Schemes around cuBLAS's own products; labels are medians of paired ratios."""
    rows = [row for row in _read("h200-portable.json")["results"] if row["dtype"] == dtype]
    rows = [row for row in rows if row["M"] >= 4096]
    work = [2 * row["M"] * row["N"] * row["K"] / 1e9 for row in rows]
    rates = {
        key: [w / row["sustained"][key] for w, row in zip(work, rows, strict=True)]
        for key in ("vendor_ms", "ms")
    }
    series = [
        Bars("cuBLAS", GREY, rates["vendor_ms"], None),
        Bars("tiercel", DARK, rates["ms"], [row["sustained"]["ratio"] for row in rows]),
    ]
    _draw(axis, [_name(row["M"], row["N"], row["K"]) for row in rows], dtype, series)


class Bars(NamedTuple):
    """One library: effective TFLOP/s by shape, and the speed over cuBLAS to write above."""

    label: str
    colour: str
    rates: list[float]
    ratios: list[float] | None


def _draw(axis: Axes, names: list[str], dtype: str, series: list[Bars]) -> None:
    width, peak = 0.8 / len(series), DATA_SHEET[dtype]
    for i, bars in enumerate(series):
        places = [x + (i - (len(series) - 1) / 2) * width for x in range(len(names))]
        axis.bar(places, bars.rates, width, color=bars.colour, label=bars.label)
        for x, rate, ratio in zip(places, bars.rates, bars.ratios or (), strict=False):
            axis.text(x, rate, f"{ratio:.2f}", ha="center", va="bottom", fontsize=7)
    axis.axhline(peak, color="black", linestyle="--", linewidth=1)
    axis.text(-0.5, peak, "data sheet", ha="left", va="bottom", fontsize=8)
    axis.set_xticks(range(len(names)), names, fontsize=8)
    axis.set_title(f"{dtype}, effective TFLOP/s", fontsize=10)
    axis.set_ylim(0, peak * 1.25)
    axis.legend(loc="upper left", fontsize=8, ncols=len(series), frameon=False)


def _name(M: int, N: int, K: int) -> str:
    return f"{M}³" if M == N == K else f"{M}\n{N}\n{K}"


def _sustained(row: dict[str, Any], player: str) -> float:
    """Speed over cuBLAS."""
    return row["players"][player]["sustained"]


def _read(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
