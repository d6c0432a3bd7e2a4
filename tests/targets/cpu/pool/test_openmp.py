"""Products on the threads of an OpenMP runtime, here one made of Python threads."""

import ctypes
import threading

import numpy as np
import pytest

from tests.targets.cpu.recipes import integers, recipe
from tiercel.targets.cpu.kernel import execute
from tiercel.targets.cpu.pool import openmp

SIZE = 60
MEMBER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Team:
    """Stands for ``GOMP_parallel`` of a runtime whose teams have at most ``most`` threads."""

    def __init__(self, most: int) -> None:
        self.most, self.asked = most, []
        self.size = 1
        self._size = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: self.size)
        address = ctypes.cast(self._size, ctypes.c_void_p).value
        assert address is not None
        self.runtime = openmp.Runtime(self.parallel, address)

    def parallel(self, member: int, work: int, threads: int, flags: int) -> None:
        self.asked.append(threads)
        self.size = min(threads, self.most)
        others = [
            threading.Thread(target=MEMBER(member), args=(work,), name="team")
            for _ in range(self.size - 1)
        ]
        for thread in others:
            thread.start()
        MEMBER(member)(work)
        for thread in others:
            thread.join()


def works(threads: int) -> bool:
    rng = np.random.default_rng(0)
    a, b = (integers(rng, (SIZE, SIZE), "float32") for _ in range(2))
    c = np.full((SIZE, SIZE), np.nan, np.float32)
    made = recipe(SIZE, SIZE, SIZE, "strassen", threads=threads)
    return execute(made, a, b, c) and np.array_equal(c, a @ b)


@pytest.mark.parametrize("threads", [2, 3, 4])
def test_a_lent_team_multiplies(threads):
    team = Team(most=8)
    with openmp.lent(team.runtime):
        assert works(threads)
    assert team.asked == [threads]


def test_a_team_that_is_too_small_leaves_it_to_the_pool():
    team = Team(most=2)
    with openmp.lent(team.runtime):
        assert works(3)
        assert works(2)
    assert team.asked == [3, 2]


def test_one_thread_needs_no_team():
    team = Team(most=8)
    with openmp.lent(team.runtime):
        assert works(1)
    assert team.asked == []


def test_a_team_is_lent_to_the_thread_that_has_it_and_given_back():
    team = Team(most=8)
    seen = []
    with openmp.lent(team.runtime):
        other = threading.Thread(target=lambda: seen.append(openmp.lender()))
        other.start()
        other.join()
        with openmp.lent(None):
            seen.append(openmp.lender())
        assert openmp.lender() is team.runtime
    assert [*seen, openmp.lender()] == [None, None, None]


def test_nothing_is_lent_after_a_fork(monkeypatch):
    monkeypatch.setattr(openmp, "_forked", False)
    with openmp.lent(Team(most=8).runtime):
        openmp._forget()
        assert openmp.lender() is None
        assert works(2)


def test_a_library_that_is_not_loaded_or_has_no_teams():
    assert openmp.of_library("/no/such/library.so") is None
    assert openmp.of_library(ctypes.__file__) is None
