"""Draws docs/h200-lcma.png from the results of h200_lcma.

Usage: python benchmarks/h200_lcma_picture.py
"""

from __future__ import annotations

import json
import math
from typing import Any

from h200_picture import DARK, GREY, RESULTS, ROOT, Bars, _draw, _title
from matplotlib import pyplot as plt

LIGHT, GREEN = "#7fb3d5", "#1e8449"


def main() -> None:
    """By shape: vendor, classical kernel, the best scheme with B packed and with both combined."""
    found = json.loads((RESULTS / "h200-lcma.json").read_text())["shapes"]
    rows = [row for row in found if _names(row, "dynamic") or _names(row, "guarded")]
    figure, axis = plt.subplots(figsize=(10, 4.5), dpi=110)
    series = [
        Bars("cuBLAS", GREY, _rates(rows, ["vendor"]), None),
        Bars("tiercel, classical", LIGHT, _rates(rows, ["plain"]), None),
        _best(rows, "dynamic", "by a scheme, A and B combined in the call", GREEN),
        _best(rows, "guarded", "by a scheme, B packed before", DARK),
    ]
    _draw(axis, [_title(row) for row in rows], "bfloat16", series)
    axis.set_title("NVIDIA H200, bfloat16, effective TFLOP/s, sustained", fontsize=10)
    figure.tight_layout()
    figure.savefig(ROOT / "docs" / "h200-lcma.png", metadata={"Software": None})


def _best(rows: list[dict[str, Any]], kind: str, label: str, colour: str) -> Bars:
    """Of the ways to combine, the fastest for each shape."""
    names = [_names(row, kind) for row in rows]
    rates = [
        max(_rates([row], each), default=math.nan) for row, each in zip(rows, names, strict=True)
    ]
    vendor = _rates(rows, ["vendor"])
    return Bars(label, colour, rates, [r / v for r, v in zip(rates, vendor, strict=True)])


def _names(row: dict[str, Any], kind: str) -> list[str]:
    return [name for name in row["players"] if f": {kind}" in name]


def _rates(rows: list[dict[str, Any]], players: list[str]) -> list[float]:
    return [
        row["vendor_tflops"]["sustained"] * row["players"][name]["sustained"]
        for row in rows
        for name in players
    ]


if __name__ == "__main__":
    main()
