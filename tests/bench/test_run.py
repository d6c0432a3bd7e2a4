"""The run's logic with workers that answer without a process."""

from typing import Any

import pytest

from tiercel.bench import rounds, run
from tiercel.bench.case import Case
from tiercel.bench.crew import RequestFailed, WorkerLost

SECONDS = {"tiercel": 1.0, "numpy": 1.2, "blis": 1.1}


class FakeWorker:
    version = "1"
    seconds: dict[str, float] = SECONDS
    plan: dict[str, Any] = {"scheme": "strassen", "candidates": [{}, {}]}  # noqa: RUF012 - likewise

    def __init__(self, name: str, trouble: dict[tuple[str, str], Exception]) -> None:
        self.name, self.trouble, self.asked = name, trouble, []

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        self.asked.append(do)
        if (self.name, do) in self.trouble:
            raise self.trouble[self.name, do]
        return {
            "prepare": {"seconds": self.seconds[self.name], "error": 1e-7},
            "go": {"seconds": self.seconds[self.name]},
            "beside_numpy": {"numpy": [1.01, 1.01, 1.2], "own": [1.0] * 3},
            "release": {},
            "peak": {"gflops": 98.0},
            "plan": {"plan": self.plan},
            "overhead": {"rows": [{"size": 4, "numpy_us": 1.0, "tiercel_us": 2.0}]},
        }[do]


class FakeCrew:
    trouble: dict[tuple[str, str], Exception] = {}  # noqa: RUF012 - replaced by each test

    def __init__(self, names: list[str], threads: int) -> None:
        self.workers = {name: FakeWorker(name, self.trouble) for name in names}
        self.lost: list[str] = []

    def drop(self, name: str, reason: Exception) -> None:
        self.workers.pop(name)
        self.lost.append(str(reason))

    def __enter__(self) -> "FakeCrew":
        return self

    def __exit__(self, *_: object) -> None: ...


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch):
    def measure(trouble: dict, *cases: Case) -> run.Record:
        monkeypatch.setattr(FakeCrew, "trouble", trouble)
        monkeypatch.setattr(run, "Crew", FakeCrew)
        record = run.Record()
        run.measure(cases or (Case(8, 8, 8),), list(SECONDS), record, seconds=0)
        return record

    return measure


def test_every_library_is_timed_and_compared(measured):
    record = measured({})
    (result,) = record.cases
    assert [t.library for t in result.timings] == ["tiercel", "numpy", "blis"]
    assert result.ratio.median == pytest.approx(1.1)
    assert result.of("numpy").rounds == 3
    assert result.plan == {"scheme": "strassen"}
    assert record.peaks == {("float32", 1): 98.0}
    assert record.overhead[0].tiercel_us == 2.0
    assert record.versions == dict.fromkeys(SECONDS, "1")
    assert record.notes == []


def test_a_verdict_against_tiercel_is_measured_again(measured, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(FakeWorker, "seconds", SECONDS | {"blis": 0.9})
    (result,) = measured({}).cases
    assert {t.rounds for t in result.timings} == {3 + rounds.MORE_ROUNDS}
    assert result.ratio.median == pytest.approx(0.9)


def test_numpys_own_routine_is_compared_within_one_process(
    measured, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(FakeWorker, "seconds", SECONDS | {"numpy": 0.8})
    monkeypatch.setattr(FakeWorker, "plan", {"algorithm": "vendor"})
    (result,) = measured({}).cases
    assert result.of("numpy").ratio.median == pytest.approx(1.01)
    assert result.of("numpy").seconds.median == 0.8
    assert result.of("numpy").rounds == 3


def test_cases_are_grouped_by_threads_and_ordered_by_size(measured):
    cases = Case(16, 16, 16, threads=2), Case(16, 16, 16), Case(8, 8, 8)
    order = [(r.case.threads, r.case.m) for r in measured({}, *cases).cases]
    assert order == [(1, 8), (1, 16), (2, 16)]


def test_no_case_is_begun_after_the_pause(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(run, "Crew", FakeCrew)
    record = run.Record()
    run.measure([Case(8, 8, 8)], list(SECONDS), record, seconds=0, pause_after=0)
    assert record.cases == []


def test_a_peer_that_cannot_prepare_is_noted_and_left_out(measured):
    record = measured({("blis", "prepare"): RequestFailed("blis: no memory")})
    assert [t.library for t in record.cases[0].timings] == ["tiercel", "numpy"]
    assert record.notes == ["8³ float32: blis: no memory"]


def test_a_lost_peer_leaves_the_comparison(measured):
    record = measured({("blis", "prepare"): WorkerLost("blis: crashed")}, Case(8, 8, 8))
    assert record.cases[0].of("blis") is None
    assert record.notes == ["blis: crashed"]


def test_a_failure_within_a_round_gives_the_case_up(measured):
    record = measured({("numpy", "go"): RequestFailed("numpy: odd")})
    assert record.cases == []
    assert record.notes == ["8³ float32: given up: numpy: odd"]


def test_missing_peak_plan_and_overhead_do_not_stop_the_run(measured):
    names = ("peak", "plan", "overhead")
    record = measured({("tiercel", do): RequestFailed(f"tiercel: no {do}") for do in names})
    assert len(record.cases) == 1
    assert record.cases[0].plan is None
    assert record.overhead == []
    assert any("no peak" in note for note in record.notes)


def test_progress_reaches_the_end(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(run, "Crew", FakeCrew)
    seen: list[run.Progress] = []
    run.measure([Case(8, 8, 8)] * 2, ["numpy"], run.Record(), seconds=0, on_progress=seen.append)
    assert [p.done for p in seen] == sorted(p.done for p in seen)
    assert seen[-1].done == seen[-1].total == 2
