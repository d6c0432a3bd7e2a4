"""The thread pool under what programs do to it: threads, forks, interrupts, exits, idling."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.targets.cpu.recipes import integers, python, recipe
from tiercel.lower.recipe import Recipe
from tiercel.targets.cpu.kernel import execute
from tiercel.targets.cpu.pool.pool import MAX_WORKERS, Caller, pool

SIZE = 60


def works(made: Recipe, seed: int = 0) -> bool:
    rng = np.random.default_rng(seed)
    a, b = (integers(rng, (SIZE, SIZE), "float32") for _ in range(2))
    c = np.full((SIZE, SIZE), np.nan, np.float32)
    return execute(made, a, b, c) and np.array_equal(c, a @ b)


def job(threads: int) -> Recipe:
    return recipe(SIZE, SIZE, SIZE, "strassen", threads=threads)


def workers() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("tiercel-")]


def test_teams_of_changing_size():
    for threads in (1, 2, 3, 2, 4, 1, 3, 4, 2) * 5:
        assert works(job(threads))
    assert len(workers()) == len(pool()._wake)


def test_callers_at_once_get_right_results_from_a_bounded_number_of_threads():
    assert works(job(3))
    before = threading.active_count()
    seen = []

    def caller(seed: int) -> bool:
        made = job(2 + seed % 2)
        right = all(works(made, seed + i) for i in range(100))
        seen.append(threading.active_count())
        return right

    with ThreadPoolExecutor(4) as callers:
        assert all(callers.map(caller, range(4)))
    assert max(seen) <= before + 4


def test_a_caller_that_finds_the_pool_busy_works_alone():
    caller = Caller()
    assert pool().acquire(caller)
    try:
        assert not pool().acquire(Caller())
        with ThreadPoolExecutor(1) as other:
            assert other.submit(works, job(2)).result(timeout=30)
    finally:
        pool().release(caller)


def is_free() -> bool:
    caller = Caller()
    acquired = pool().acquire(caller)
    pool().release(caller)
    return acquired


def test_the_pool_is_free_after_a_call_and_after_a_failure():
    assert works(job(2))
    assert is_free()
    x = np.zeros((SIZE, SIZE), np.float32)
    with pytest.raises(AttributeError):
        execute(job(2), x, None, x)  # type: ignore[arg-type]
    assert is_free()


def test_only_who_has_the_pool_releases_it():
    caller, other = Caller(), Caller()
    assert pool().acquire(caller)
    pool().release(other)
    assert not pool().acquire(other)
    pool().release(caller)
    assert is_free()


def test_a_caller_that_was_interrupted_before_it_could_release_is_replaced():
    caller = Caller()
    assert pool().acquire(caller)
    del caller
    with ThreadPoolExecutor(1) as other:  # which cannot know; only the same thread does
        assert not other.submit(is_free).result(timeout=30)
    assert is_free()


def test_more_threads_than_workers_can_exist(monkeypatch: pytest.MonkeyPatch):
    """The control block has room for so many; a larger team would write past its end."""
    asked = []

    def run(function, address, params, threads):
        asked.append(threads)
        return 0

    monkeypatch.setattr(pool(), "run", run)
    monkeypatch.setattr(pool(), "start", lambda workers: workers)
    execute(job(200), *(np.zeros((SIZE, SIZE), np.float32) for _ in range(3)))
    assert asked == [MAX_WORKERS + 1]


def cpu_seconds_while_idle() -> float:
    time.sleep(0.05)  # workers spin for a moment before they park
    start = time.process_time()
    time.sleep(0.2)
    return time.process_time() - start


def test_idle_workers_use_no_cpu():
    assert works(job(3))
    assert cpu_seconds_while_idle() < 0.05


def test_a_worker_that_is_woken_for_nothing_parks_again():
    """As after a KeyboardInterrupt between the release of its lock and the note of it."""
    assert works(job(2))
    time.sleep(0.05)
    pool()._wake[0].release()
    assert cpu_seconds_while_idle() < 0.05
    assert works(job(2))
    assert cpu_seconds_while_idle() < 0.05


USE = """
import os, sys
from tests.targets.cpu.pool.test_pool import job, works
assert works(job(2)) and works(job(3))
"""


def test_fewer_threads_where_the_system_starts_no_more():
    python(
        """
import threading
from tests.targets.cpu.pool.test_pool import job, works
from tiercel.targets.cpu.pool.pool import pool
start = threading.Thread.start
def refuse(thread):
    if len(pool()._wake) == limit:
        raise RuntimeError("can't start new thread")
    start(thread)
threading.Thread.start = refuse
for limit in (0, 1, 3):
    assert works(job(3))
    assert len(pool()._wake) == min(limit, 2)
"""
    )


def test_products_at_the_end_of_the_interpreter():
    """Its daemon threads never get the interpreter's lock again."""
    told = python(
        USE
        + """
made = job(2)
assert works(made)
class Last:
    def __del__(self, works=works, made=made, ends=sys.is_finalizing):
        print(ends(), works(made))
last = Last()
"""
    )
    assert told == "True True\n"


def test_child_and_parent_compute_after_a_fork():
    python(
        USE
        + """
for _ in range(3):
    child = os.fork()
    if child == 0:
        grandchild = os.fork()
        if grandchild == 0:
            os._exit(0 if works(job(3)) else 1)
        fine = works(job(3)) and os.waitpid(grandchild, 0)[1] == 0
        os._exit(0 if fine else 1)
    assert works(job(3))
    assert os.waitpid(child, 0)[1] == 0
"""
    )


def test_fork_while_another_thread_computes():
    python(
        USE
        + """
import threading
stop = False
def compute():
    while not stop:
        assert works(job(2))
thread = threading.Thread(target=compute)
thread.start()
for _ in range(10):
    child = os.fork()
    if child == 0:
        os._exit(0 if works(job(2)) else 1)
    assert os.waitpid(child, 0)[1] == 0
stop = True
thread.join()
"""
    )


@pytest.mark.parametrize("seed", [1, 2])
def test_keyboard_interrupts_at_any_moment_leave_the_pool_usable(seed: int):
    """The interrupts come from another process, so that they strike anywhere."""
    storm = """
import os, random, sys, time
pause = random.Random(int(sys.argv[2]))
for _ in range(300):
    time.sleep(pause.random() * 0.006)
    os.kill(int(sys.argv[1]), 2)
"""
    python(
        USE
        + """
import gc, signal, subprocess
from tests.targets.cpu.pool.test_pool import cpu_seconds_while_idle, is_free
storm, seed = sys.argv[1:]
made = job(2)
interrupts = products = 0
armed = False
def interrupt(*_):
    global armed
    if armed:
        armed = False
        raise KeyboardInterrupt
signal.signal(signal.SIGINT, interrupt)
command = [sys.executable, "-c", storm, str(os.getpid()), seed]
sender = subprocess.Popen(command, start_new_session=True)
while sender.poll() is None:
    try:
        armed = True
        assert works(made)
        products += 1
        armed = False
    except KeyboardInterrupt:
        interrupts += 1
assert interrupts > 20 and products > 5, (interrupts, products)
gc.collect()
assert is_free()
assert works(made) and works(job(3))
assert cpu_seconds_while_idle() < 0.05
""",
        storm,
        str(seed),
    )


def test_first_calls_of_many_threads_at_once():
    python("""
import threading
from concurrent.futures import ThreadPoolExecutor
from tests.targets.cpu.pool.test_pool import job, works
gate = threading.Barrier(8)
def first(seed):
    gate.wait()
    return all(works(job(2), seed + i) for i in range(20))
with ThreadPoolExecutor(8) as callers:
    assert all(callers.map(first, range(8)))
""")


def test_exit_right_after_a_call():
    """Workers may still be spinning in compiled code."""
    for end in ("", "sys.exit(0)", "os.kill(os.getpid(), 0)"):
        python(USE + end)
