import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tiercel.bench import roster, run
from tiercel.bench.case import Case
from tiercel.bench.results import CaseResult, Timing, read_json
from tiercel.bench.timing import Spread
from tiercel.cli import main
from tiercel.commands import bench as command


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), prog_name="tiercel")


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "describe_machine", lambda: {"cpu": "test", "cores": 2})


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the command asked to be measured; nothing is run."""
    asked: list[dict[str, Any]] = []

    def measure(cases: list[Case], libraries: list[str], record: run.Record, **options: Any):
        asked.append({"cases": cases, "libraries": libraries, **options})
        second = Spread(1.0, 1.0, 1.0)
        timings = (Timing("tiercel", second, 3), Timing("numpy", second, 3, ratio=second))
        record.cases += [CaseResult(case, timings) for case in cases]

    monkeypatch.setattr(run, "measure", measure)
    return asked


def test_bench_writes_what_it_is_asked_for(measured: list, tmp_path: Path):
    plot, data, page = (tmp_path / name for name in ("out.png", "out.json", "out.html"))
    options = ["--plot", str(plot), "--json", str(data), "--html", str(page)]
    result = invoke("bench", "--shapes", "64,32x16x8", "--threads", "1", *options)
    assert result.exit_code == 0, result.output
    assert "32×16×8" in result.output
    assert [r.case.label for r in read_json(data).cases] == ["64³", "32×16×8"]
    assert plot.stat().st_size > 1000
    assert "<svg" in page.read_text(encoding="utf-8")


def test_bench_options_reach_the_cases(measured: list):
    options = ["--dtype", "f64", "--layouts", "row,col", "--static-b", "--threads", "2"]
    assert invoke("bench", "--shapes", "64", *options, "--seconds", "5").exit_code == 0
    (case,) = measured[0]["cases"]
    assert (case.dtype, case.layout_b, case.static_b, case.threads) == ("float64", "col", True, 2)
    assert measured[0]["seconds"] == 5


def test_bench_resumes_what_a_file_lacks(measured: list, tmp_path: Path):
    data = str(tmp_path / "out.json")
    assert invoke("bench", "--shapes", "64", "--threads", "1", "--json", data).exit_code == 0
    more = ["--shapes", "64,32", "--threads", "1", "--json", data, "--resume"]
    assert invoke("bench", *more, "--pause-after", "5").exit_code == 0
    assert [case.label for case in measured[1]["cases"]] == ["32³"]
    assert measured[1]["pause_after"] == 5
    assert [r.case.label for r in read_json(Path(data)).cases] == ["64³", "32³"]


def test_bench_resumes_a_file_only(measured: list):
    result = invoke("bench", "--shapes", "64", "--resume")
    assert result.exit_code != 0
    assert "name it with --json" in result.output + result.stderr


def test_random_shapes_meet_numpy_only(measured: list):
    assert invoke("bench", "--shapes", "random:7", "--seed", "3").exit_code == 0
    assert measured[0]["libraries"] == ["tiercel", "numpy"]
    assert len(measured[0]["cases"]) == 7


def test_bars_keep_their_own_threads(measured: list):
    assert invoke("bench", "--shapes", "issue", "--peers", "numpy").exit_code == 0
    assert {case.threads for case in measured[0]["cases"]} == {1, 2}


def test_interrupt_keeps_what_was_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "measure", interrupted)
    data = tmp_path / "out.json"
    result = invoke("bench", "--shapes", "64", "--json", str(data))
    assert "interrupted after 0 of 1 cases" in result.output
    assert data.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bench", "--shapes", "1x2"], "write MxNxK"),
        (["bench", "--shapes", "8", "--peers", "atlas"], "known are"),
        (["bench", "--shapes", "8", "--dtype", "int8"], "float32 and float64"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], message: str):
    result = invoke(*arguments)
    assert result.exit_code == 1
    assert result.output.startswith("Error: ")
    assert message in result.output
    assert "Traceback" not in result.output


def test_env_names_the_machine_and_the_peers():
    result = invoke("env")
    assert result.exit_code == 0, result.output
    for word in ("cpu", "cores", "own kernel", "numpy's BLAS", "mkl", "packages", "folder"):
        assert word in result.output
    assert "{" not in result.output, "for people"


def test_signs_that_an_output_lacks_are_replaced():
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    command = [sys.executable, "-m", "tiercel", "schemes"]
    ran = subprocess.run(command, capture_output=True, env=ascii_only)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.isascii()


def test_env_says_how_to_get_a_peer(monkeypatch: pytest.MonkeyPatch):
    absent = roster.Source(lambda: False, roster.Torch, "pip install 'tiercel[torch]'")
    monkeypatch.setitem(roster.LIBRARIES, "torch", absent)
    assert "pip install 'tiercel[torch]'" in invoke("env").output


def test_explain_prints_the_plan():
    result = invoke("explain", "512", "512", "512", "--dtype", "fp32", "--static", "b")
    assert result.exit_code == 0, result.output
    assert "classical" in result.output.lower()


def test_explain_as_json():
    arguments = ["--workspace", "0", "--accuracy", "classical", "--threads", "1", "--json"]
    result = invoke("explain", "64", "32", "16", *arguments)
    assert result.exit_code == 0, result.output
    assert isinstance(json.loads(result.output), dict)


def test_cache_info_and_clear(empty_cache: Path):
    info = invoke("cache", "info")
    assert info.exit_code == 0, info.output
    assert "entries" in info.output
    assert invoke("cache", "clear").exit_code == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
@pytest.mark.parametrize("arguments", [["schemes"], ["--help"], ["explain", "8", "8", "8"]])
def test_a_full_disk_behind_the_output_is_one_line(arguments: list[str]):
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "tiercel", *arguments]
        ran = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert ran.returncode == 1
    assert ran.stderr.startswith("Error: ")
    assert len(ran.stderr.splitlines()) == 1
