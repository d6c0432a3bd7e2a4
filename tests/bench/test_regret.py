"""Regret and gains, from measured times."""

from pathlib import Path

import pytest
from rich.console import Console

from tiercel.bench import replan
from tiercel.bench.case import Case
from tiercel.bench.prediction_picture import write_prediction_picture
from tiercel.bench.regret import regret, table
from tiercel.planner.gpu import required
from tiercel.planner.winners import Measured


def measured(size: int, planned: str, **seconds: float) -> Measured:
    predicted = {name: 1.1 * t for name, t in seconds.items()}
    memory = dict.fromkeys(seconds, 0)
    return Measured(
        size, size, size, "float32", "row", "row", False, 2, planned, seconds, predicted, memory
    )


RIGHT = measured(512, "strassen", vendor=1.2, classical=1.1, strassen=1.0)
WRONG = measured(256, "vendor", vendor=1.0, classical=0.8)


def test_regret_and_gains_are_means_over_the_products():
    figures = regret([RIGHT, WRONG])
    assert figures.count == 2
    assert (figures.mean, figures.worst) == pytest.approx((1.125, 1.25))
    assert figures.against_vendor == 1.0
    assert (figures.gain, figures.schemes, figures.scheme_gain) == pytest.approx((0.1, 1, 0.2))
    assert figures.tuned_gain == pytest.approx((0.2 + 0.25) / 2)
    assert figures.error == pytest.approx(0.1)
    assert "regret mean 1.125" in str(figures)


def test_the_table_marks_what_was_planned():
    console = Console(width=120, record=True)
    console.print(table([RIGHT, WRONG]))
    lines = console.export_text().splitlines()
    assert lines[1].split() == [
        "256×256×256", "1000.00", "1000.00", "vendor", "800.00", "classical", "1.250", "+0.0%",
    ]  # fmt: skip
    assert lines[2].split() == [
        "512×512×512", "1200.00", "1000.00", "strassen", "1.000", "+20.0%",
    ]  # fmt: skip


def test_predictions_are_drawn(tmp_path: Path):
    path = tmp_path / "scatter.png"
    other = measured(700, "laderman", vendor=1.2, laderman=1.1)
    write_prediction_picture([RIGHT, WRONG, other], "Made up", path)
    assert path.stat().st_size > 5000


def test_the_whole_grid_is_predicted(monkeypatch: pytest.MonkeyPatch):
    few = [Case(4096, 7168, 18432), Case(512, 64, 64)]
    monkeypatch.setattr(replan, "layer_cases", lambda divisor: few[:divisor])
    count, gain = replan.grid_gain(required("NVIDIA H200"), ("float32", True, 1), 1)
    assert count == 1
    assert 0.2 < gain < 0.5
    assert replan.grid_gain(required("NVIDIA H200"), ("float32", True, 1), 2)[1] == gain / 2
