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
    tuned = [read(RESULTS / f"h200-candidates-{name}.json") for name in ("bf16", "fresh")]
    measured = [m for x in tuned for m in x.measured if m.dtype == "bfloat16"]
    products = replanned(measured, tuned[0].profiles[0])
    figures = regret(products)
    assert figures.count >= 220
    assert figures.mean <= 1.02
    assert figures.p95 <= 1.05
    assert figures.gain >= 0.065
    # 3584 × 12288 and few others: cuBLAS is faster than every tile of the own kernel.
    assert sum(m.against_vendor > 1.02 for m in products) <= 0.02 * len(products)
    assert figures.against_vendor <= 1.045


def test_choices_of_a_sample_that_nothing_was_learned_from():
    measured = read(RESULTS / "h200-candidates-fresh.json").measured
    for dtype, gain in (("float32", 0.2), ("bfloat16", 0.07)):
        figures = regret([m for m in measured if m.dtype == dtype])
        assert figures.count >= 120
        assert figures.mean <= 1.02
        assert figures.p95 <= 1.05
        assert figures.gain >= gain


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
