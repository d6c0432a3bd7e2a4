"""How many threads a product may use, as the surroundings say."""

from pathlib import Path

import pytest

from tests.targets.cpu.recipes import python
from tiercel.targets.cpu import threads


@pytest.fixture
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIERCEL_NUM_THREADS", raising=False)
    monkeypatch.setattr(threads, "cores", lambda: 8)
    monkeypatch.setattr(threads, "_blas_threads", lambda: None)


def test_all_cores_by_default(eight_cores):
    assert threads.allowed() == 8


@pytest.mark.parametrize(("value", "count"), [("3", 3), (" 5 ", 5), ("0", 1), ("-2", 1), ("12", 8)])
def test_environment_variable_has_the_last_word_up_to_the_cores(
    eight_cores, monkeypatch, value: str, count: int
):
    monkeypatch.setenv("TIERCEL_NUM_THREADS", value)
    assert threads.allowed() == count


def test_environment_variable_that_is_no_number_is_ignored(eight_cores, monkeypatch):
    monkeypatch.setenv("TIERCEL_NUM_THREADS", "")
    assert threads.allowed() == 8
    monkeypatch.setenv("TIERCEL_NUM_THREADS", "many")
    with pytest.warns(RuntimeWarning, match="'many' is not a number of threads; allowed: 1 to 8"):
        assert threads.allowed() == 8
    assert threads.allowed() == 8  # one warning is enough


@pytest.mark.parametrize(("blas", "count"), [(1, 1), (5, 5), (64, 8)])
def test_limit_of_the_blas_counts(eight_cores, monkeypatch, blas: int, count: int):
    monkeypatch.setattr(threads, "_blas_threads", lambda: lambda: blas)
    assert threads.allowed() == count


def test_threadpoolctl_limits_for_the_time_of_a_block():
    out = python(
        """
import numpy
from threadpoolctl import threadpool_limits
from tiercel.targets.cpu import threads
threads.cores = lambda: 2
before = threads.allowed()
with threadpool_limits(1):
    inside = threads.allowed()
print(before, inside, threads.allowed())
""",
        OPENBLAS_NUM_THREADS="2",
    )
    assert out.split() == ["2", "1", "2"]


def test_daemonic_child_uses_one_thread():
    out = python(
        """
import multiprocessing
from tiercel.targets.cpu import threads
def report(queue):
    threads.cores = lambda: 8
    queue.put(threads.allowed())
context = multiprocessing.get_context("fork")
for daemon in (True, False):
    queue = context.SimpleQueue()
    child = context.Process(target=report, args=(queue,), daemon=daemon)
    child.start()
    print(queue.get())
    child.join()
""",
        OPENBLAS_NUM_THREADS="8",
    )
    daemonic, other = map(int, out.split())
    assert daemonic == 1
    assert other > 1


def test_affinity_limits_the_cores():
    out = python(
        """
import os
from tiercel.targets.cpu import threads
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
print(threads.cores(), threads.allowed())
""",
        TIERCEL_NUM_THREADS="",
    )
    assert out.split() == ["1", "1"]


class Files:
    """Stands in for ``Path``: the files of a control group, by absolute path."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __call__(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def write(self, path: str, text: str) -> None:
        self(path).parent.mkdir(parents=True, exist_ok=True)
        self(path).write_text(text)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    made = Files(tmp_path)
    monkeypatch.setattr(threads, "Path", made)
    return made


@pytest.mark.parametrize(
    ("text", "quota"), [("max 100000", None), ("150000 100000", 1.5), ("garbage", None)]
)
def test_quota_of_a_control_group(files: Files, text: str, quota: float | None):
    files.write("/sys/fs/cgroup/cpu.max", text)
    assert threads._cgroup_quota() == quota


@pytest.mark.parametrize(("text", "quota"), [("-1", None), ("50000", 0.5)])
def test_quota_of_an_old_control_group(files: Files, text: str, quota: float | None):
    files.write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", text)
    files.write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000")
    assert threads._cgroup_quota() == quota


def test_no_control_group_is_no_quota(files: Files):
    assert threads._cgroup_quota() is None


@pytest.mark.parametrize(("quota", "count"), [(None, 6), (0.5, 1), (1.5, 2), (64.0, 6)])
def test_quota_is_rounded_up(monkeypatch, quota: float | None, count: int):
    monkeypatch.setattr(threads, "_cgroup_quota", lambda: quota)
    monkeypatch.setattr(threads.os, "sched_getaffinity", lambda _: set(range(6)), raising=False)
    assert threads.cores.__wrapped__() == count
