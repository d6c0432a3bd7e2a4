"""The planner against times measured on a two-core AVX2 machine, with that machine's profile."""

from pathlib import Path

import pytest

from tiercel.bench.regret import regret
from tiercel.bench.replan import replanned
from tiercel.bench.tuned import read

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
TUNED = read(RESULTS / "cpu-avx2-candidates.json")


#: Up to so many rows or columns the classical kernel has packed B in turn only since the layers
#: were measured.
IN_TURN = 384


@pytest.mark.parametrize(
    ("file", "least"), [("cpu-avx2-candidates.json", 34), ("cpu-avx2-layers.json", 85)]
)
def test_choices_are_nearly_as_fast_as_the_best_candidates(file: str, least: int):
    tuned = read(RESULTS / file)
    measured = [m for m in tuned.measured if min(m.M, m.N) > IN_TURN]
    figures = regret(replanned(measured, tuned.profiles[0]))
    assert figures.count >= least
    assert figures.mean <= 1.02
    assert figures.p95 <= 1.05
    assert figures.against_vendor <= 1.02


@pytest.mark.parametrize("algorithm", ["vendor", "classical", "strassen", "strassen2"])
def test_predicted_times_are_close(algorithm: str):
    ratios = sorted(
        m.predicted[algorithm] / m.seconds[algorithm]
        for m in TUNED.measured
        if algorithm in m.seconds
    )
    assert len(ratios) >= 30
    assert 0.95 < ratios[len(ratios) // 2] < 1.05
    assert 0.8 < ratios[0] < ratios[-1] < 1.2
