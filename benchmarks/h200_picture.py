"""Draws docs/h200.png from the results of h200_gemm, h200_fp8_tf32 and h200_portable.

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
DATA_SHEET = {"bfloat16": 989, "float8": 1979, "TF32": 494, "float32": 67, "float64": 67}
GREY, DARK = "#9aa0a6", "#1a5276"


def main() -> None:
    """Read the results, draw five panels."""
    figure = plt.figure(figsize=(13, 8.2), dpi=110)
    grid, other = figure.add_gridspec(2, 14), _read("h200-fp8-tf32.json")
    _hopper(figure.add_subplot(grid[0, :8]), "bfloat16", _read("h200-gemm.json")["plain"])
    _portable(figure.add_subplot(grid[0, 8:11]), "float32")
    _portable(figure.add_subplot(grid[0, 11:]), "float64")
    _hopper(figure.add_subplot(grid[1, :7]), "float8", other["float8"])
    _hopper(figure.add_subplot(grid[1, 7:]), "TF32", other["tf32"])
    figure.suptitle("NVIDIA H200, sustained: each library alone and hot, additions included")
    figure.tight_layout()
    figure.savefig(ROOT / "docs" / "h200.png", metadata={"Software": None})


def _hopper(axis: Axes, dtype: str, rows: list[dict[str, Any]]) -> None:
    """The plain kernel, or where a plan was measured what that chose, beside cuBLAS."""
    vendor = [row["vendor_tflops"]["sustained"] for row in rows]
    players = [row["players"] for row in rows]
    ratios = [found.get("matmul", found["gemm"])["sustained"] for found in players]
    rates = [v * r for v, r in zip(vendor, ratios, strict=True)]
    series = [Bars("cuBLAS", GREY, vendor, None), Bars("tiercel", DARK, rates, ratios)]
    _draw(axis, [_title(row) for row in rows], dtype, series)


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
    axis.set_ylim(0, peak * 1.3)
    columns = (len(series) + 1) // 2 if len(series) > 2 else 1  # two lines above the data sheet's
    axis.legend(loc="upper left", ncols=columns, fontsize=8, frameon=False)


def _name(M: int, N: int, K: int) -> str:
    return f"{M}³" if M == N == K else f"{M}\n{N}\n{K}"


def _title(row: dict[str, Any]) -> str:
    """Shape, and which scales or layout."""
    words = f"{row.get('layout', '')} {row.get('scales', '')} {'fast' * row.get('fast', False)}"
    return "\n".join([_name(*row["shape"]), *words.split()])


def _read(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
