"""The GPU's cost model, with the shipped profile, against times measured on an NVIDIA H200."""

from pathlib import Path

import numpy as np
import pytest

from tiercel.bench.regret import regret
from tiercel.bench.replan import replanned
from tiercel.bench.tuned import read

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results"
TUNED = read(RESULTS / "h200-candidates.json")
PRODUCTS = replanned(TUNED.measured, TUNED.profiles[0])


def test_choices_are_nearly_as_fast_as_the_best_candidates():
    figures = regret([m for m in PRODUCTS if m.dtype == "float32"])
    assert figures.mean <= 1.02
    assert figures.p95 <= 1.05
    assert figures.against_vendor <= 1.02


def test_16_bit_choices_are_nearly_as_fast_as_the_best_candidates():
    tuned = read(RESULTS / "h200-candidates-bf16.json")
    figures = regret(replanned(tuned.measured, tuned.profiles[0]))
    assert figures.count >= 120
    assert figures.mean <= 1.02
    assert figures.p95 <= 1.05
    assert figures.against_vendor <= 1.03
    assert figures.gain >= 0.055


@pytest.mark.parametrize("algorithm", ["vendor", "strassen", "strassen2", "strassen3"])
def test_predicted_times_are_close(algorithm: str):
    ratios = [
        m.predicted[algorithm] / m.seconds[algorithm]
        for m in PRODUCTS
        if m.dtype == "float32" and algorithm in m.seconds
    ]
    assert len(ratios) >= 10
    assert 0.96 < np.median(ratios) < 1.04
    low, high = np.percentile(ratios, [5, 95])
    assert 0.9 < low < high < 1.1
