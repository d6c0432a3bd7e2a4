"""Products of CPU tensors run on torch's own threads, where it has OpenMP's, as on Linux."""

import multiprocessing
import threading
from typing import Any

import torch
from torch.nn import functional as F

import tiercel
from tiercel.frontends.torch import cpu
from tiercel.targets.cpu.pool import openmp
from tiercel.targets.cpu.pool.pool import Pool


def test_the_workers_of_the_pool_have_nothing_to_do(monkeypatch):
    x, w = torch.randn(2, 700, 700)
    options: dict[str, Any] = {"scheme": "strassen", "threads": 3}
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        tiercel.linear(x, w, **options)  # may measure the machine, with the pool's workers

        def summon(pool, workers):
            raise AssertionError(f"{workers} workers were summoned")

        monkeypatch.setattr(Pool, "start", summon)
        found = tiercel.linear(x, w, **options)
    finally:
        torch.set_num_threads(before)
    plan = tiercel.last_plan()
    assert plan is not None
    assert plan.chosen.recipe.threads == 3
    torch.testing.assert_close(found, F.linear(x, w), rtol=1e-3, atol=1e-3)


def test_alternating_with_operators_of_torch():
    x, w = torch.randn(2, 600, 600)
    for _ in range(10):
        found = tiercel.linear(F.gelu(x), w, scheme="strassen")
        torch.testing.assert_close(found, F.linear(F.gelu(x), w), rtol=1e-3, atol=1e-3)


def test_callers_at_once():
    x, w = torch.randn(2, 500, 500)
    reference, wrong = F.linear(x, w), []

    def call() -> None:
        for _ in range(10):
            found = tiercel.linear(x, w, scheme="strassen")
            if not torch.allclose(found, reference, rtol=1e-3, atol=1e-3):
                wrong.append(found)

    callers = [threading.Thread(target=call) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


def _child(queue) -> None:
    queue.put(openmp.lender() is None)


def test_a_forked_child_has_none():
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    with openmp.lent(cpu.torchs_threads()):
        child = context.Process(target=_child, args=(queue,))
        child.start()
        assert queue.get(timeout=30)
        child.join()
