import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from tiercel.bench.case import Case
from tiercel.bench.crew import CAN_FREEZE, Crew, RequestFailed, WorkerLost, worker_environment

STATE_IS_READABLE = CAN_FREEZE and Path("/proc/self/stat").exists()


def process_state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.fixture
def crew():
    with Crew(["numpy"], threads=1) as crew:
        yield crew


def test_worker_measures_and_survives_a_failure(crew: Crew):
    worker = crew.workers["numpy"]
    assert worker.version[0].isdigit()
    with pytest.raises(RequestFailed, match=r"numpy: .*prepare comes before go"):
        worker.ask("go")
    answer = worker.ask("prepare", case=asdict(Case(64, 64, 64)), seed=0)
    assert answer["error"] < 1e-6
    assert worker.ask("go")["seconds"] > 0


@pytest.mark.skipif(not STATE_IS_READABLE, reason="needs /proc and SIGSTOP")
def test_worker_stands_still_while_it_is_not_its_turn(crew: Crew):
    worker = crew.workers["numpy"]
    worker.ask("release")
    deadline = time.monotonic() + 5  # the signal takes effect a moment after it is sent
    while process_state(worker._process.pid) != "T" and time.monotonic() < deadline:
        time.sleep(0.001)
    assert process_state(worker._process.pid) == "T"


def test_a_killed_worker_is_reported(crew: Crew):
    worker = crew.workers["numpy"]
    os.kill(worker._process.pid, signal.SIGKILL)
    with pytest.raises(WorkerLost, match="numpy: its process ended with code"):
        worker.ask("release")


def test_a_library_that_does_not_load_leaves_the_crew():
    with Crew(["no such library"], threads=1) as crew:
        assert crew.workers == {}
        assert "no such library" in crew.lost[0]


def test_workers_are_ended(crew: Crew):
    process = crew.workers["numpy"]._process
    crew.close()
    assert process.poll() is not None


def test_environment_fixes_threads_and_drops_what_slows_a_peer(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Prescott")
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    environment = worker_environment(threads=2)
    assert "OPENBLAS_CORETYPE" not in environment
    assert environment["OMP_NUM_THREADS"] == environment["TIERCEL_NUM_THREADS"] == "2"


@pytest.mark.skipif(not STATE_IS_READABLE, reason="needs /proc and SIGSTOP")
def test_frozen_workers_end_with_a_killed_parent():
    script = (
        "import time; from tiercel.bench.crew import Worker; worker = Worker('numpy', 1); "
        "worker.hello(); print(worker._process.pid, flush=True); time.sleep(60)"
    )
    environment = worker_environment(threads=1)
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    deadline = time.monotonic() + 5
    while _is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _is_alive(pid)


def _is_alive(pid: int) -> bool:
    try:
        return process_state(pid) != "Z"
    except FileNotFoundError:
        return False
