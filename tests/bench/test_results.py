from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench.sample import case_result, flat, sample_results
from tiercel.bench.case import Case
from tiercel.bench.results import Peak, joined, read_json, write_json
from tiercel.bench.summary import bars_met, summarise_ratios
from tiercel.errors import TiercelValueError


def test_json_comes_back_the_same(tmp_path: Path):
    write_json(sample_results(), tmp_path / "first.json")
    back = read_json(tmp_path / "first.json")
    write_json(back, tmp_path / "second.json")
    assert (tmp_path / "first.json").read_text() == (tmp_path / "second.json").read_text()
    assert back.cases[0].case == sample_results().cases[0].case


def test_other_formats_are_refused(tmp_path: Path):
    write_json(sample_results(format=0), tmp_path / "old.json")
    with pytest.raises(TiercelValueError, match="reads format 1"):
        read_json(tmp_path / "old.json")


@pytest.mark.parametrize("text", ["", "{", "[1]", "\0"])
def test_files_without_results_are_refused(tmp_path: Path, text: str):
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(TiercelValueError, match="holds no results; allowed: a file that"):
        read_json(tmp_path / "other.json")


def test_ratio_is_to_the_peer_that_does_best():
    result = case_result(Case(100, 100, 100, bar=1.15), 1.0, numpy=1.3, blis=1.1)
    assert result.best_peer is not None
    assert result.best_peer.library == "blis"
    assert result.ratio is not None
    assert result.ratio.median == 1.1
    assert result.meets_bar is False


def test_a_wrong_product_meets_no_bar():
    result = case_result(Case(100, 100, 100, bar=1.0), 1.0, numpy=2.0)
    assert result.meets_bar
    ours, numpys = result.timings
    wrong = replace(result, timings=(replace(ours, error=0.7), numpys))
    assert wrong.is_wrong
    assert wrong.meets_bar is False


def test_rates_count_classical_operations():
    result = case_result(Case(1000, 1000, 1000), 0.02)
    assert result.gflops("tiercel") == pytest.approx(100.0)
    assert result.gflops("numpy") is None
    assert result.ratio is None
    assert result.meets_bar is None
    assert sample_results().percent_of_peak(result) == pytest.approx(100 / 98 * 100)


def test_summary_leaves_short_calls_out():
    random = [r for r in sample_results().cases if r.case.group == "random"]
    summary = summarise_ratios(random)
    assert summary is not None
    assert summary.count == 2
    assert summary.worst == pytest.approx(0.98)
    assert summary.worst_label == "901×800×700"
    assert summarise_ratios([]) is None


def test_a_peer_that_was_slow_in_its_own_process_makes_no_call_long():
    """What counts is its time beside tiercel: NumPy's threads take 8 ms to wake after a pause."""
    waking = case_result(Case(46, 14, 853, group="random"), 2.5e-5, numpy=8e-3)
    beside = tuple(replace(timing, ratio=timing.ratio and flat(0.96)) for timing in waking.timings)
    assert summarise_ratios([waking]) is not None
    assert summarise_ratios([replace(waking, timings=beside)]) is None


def test_bars_are_counted():
    assert bars_met(sample_results().cases) == (0, 1)


def test_parts_of_a_run_are_joined():
    first = sample_results(date="Monday", overhead=())
    again = case_result(Case(512, 512, 512, group="squares"), 1e-3, numpy=2e-3)
    new = case_result(Case(64, 64, 64), 1e-5, numpy=1e-5)
    second = sample_results(
        command="tiercel bench --shapes 64", date="Tuesday", cases=(again, new),
        peaks=(Peak("float32", 1, 97.0), Peak("float32", 2, 190.0)), notes=("a note",),
    )  # fmt: skip
    whole = joined(first, second)
    assert whole.command == "tiercel bench --shapes quick && tiercel bench --shapes 64"
    assert [r.case for r in whole.cases] == [*(r.case for r in first.cases), new.case]
    assert [r.date for r in whole.cases] == ["Tuesday", *["Monday"] * 6, "Tuesday"]
    assert whole.cases[0].ratio == again.ratio
    assert whole.peaks == (Peak("float32", 1, 98.0), Peak("float32", 2, 190.0))
    assert whole.seconds == 140.0
    assert whole.overhead == second.overhead
    assert whole.notes == ("mkl not found (pip install mkl)", "a note")
