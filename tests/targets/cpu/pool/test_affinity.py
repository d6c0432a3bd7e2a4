"""Where parked workers wake."""

import ctypes
import os
import time

import numpy as np
import pytest

import tiercel
from tiercel.targets.cpu.pool import affinity, sync
from tiercel.targets.cpu.pool.pool import pool

ALL, HERE = frozenset({0, 1, 5}), 1


@pytest.fixture
def three_cpus(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda thread: set(ALL))
    monkeypatch.setattr(affinity, "_current_cpu", lambda: lambda: HERE)


@pytest.mark.usefixtures("three_cpus")
def test_elsewhere_is_where_this_thread_does_not_run():
    assert affinity.here_and_elsewhere() == (ALL, ALL - {HERE})


@pytest.mark.usefixtures("three_cpus")
def test_one_cpu_is_left_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda thread: {HERE})
    assert affinity.here_and_elsewhere() == (frozenset(), frozenset())


def test_a_system_that_does_not_say_where_threads_run(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(affinity, "_current_cpu", lambda: None)
    assert affinity.here_and_elsewhere() == (frozenset(), frozenset())


@pytest.mark.usefixtures("three_cpus")
def test_a_system_that_forbids_moving(monkeypatch: pytest.MonkeyPatch):
    def forbid(thread, cpus=None):
        raise PermissionError

    monkeypatch.setattr(os, "sched_setaffinity", forbid)
    affinity.move(0, ALL)
    monkeypatch.setattr(os, "sched_getaffinity", forbid)
    assert affinity.here_and_elsewhere() == (frozenset(), frozenset())


def test_a_parked_worker_wakes_elsewhere_and_may_then_run_anywhere(
    monkeypatch: pytest.MonkeyPatch,
):
    moved, really = [], affinity.move

    def move(thread, cpus):
        moved.append((thread, cpus))
        really(thread, cpus)

    a = np.ones((600, 600), np.float32)
    wanted = tiercel.matmul(a, a, scheme="strassen", threads=2)
    monkeypatch.setattr(affinity, "move", move)
    state = ctypes.c_int64.from_address(pool()._control + (sync.STATES + 1) * sync.LINE)
    ends = time.monotonic() + 20
    while state.value != sync.PARKED and time.monotonic() < ends:
        time.sleep(0.001)
    assert np.array_equal(tiercel.matmul(a, a, scheme="strassen", threads=2), wanted)
    allowed = frozenset(os.sched_getaffinity(0))
    (worker, elsewhere), (itself, anywhere) = moved
    assert (worker, itself) == (pool()._threads[0].native_id, 0)
    if len(allowed) > 1:
        assert anywhere == allowed > elsewhere
        assert os.sched_getaffinity(worker) == allowed
