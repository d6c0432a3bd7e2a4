"""Fixtures that send small products down the planned path, and that stand in for the engine."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace

import numpy as np
import pytest

from tiercel import shortcut
from tiercel.frontends.numpy import batch, packed, product, repeated
from tiercel.targets import vendor


@pytest.fixture(autouse=True)
def no_shortcuts() -> Iterator[None]:
    """Plans that one test made are not another's."""
    shortcut.forget()
    yield
    shortcut.forget()


@pytest.fixture
def plan_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """No product is too small to be planned."""
    monkeypatch.setattr(shortcut, "TINY", -1)
    monkeypatch.setattr(batch, "unplanned", lambda dtype: (0, 0))


class Engine:
    """Records the products it is asked for and computes them with NumPy.

    ``algorithm`` is what its planner chooses; ``safe`` is what the guard of a scheme answers.
    """

    def __init__(self) -> None:
        self.algorithm = "strassen"
        self.safe = True
        self.problems: list = []
        self.runs: list[str] = []
        self.packed_runs = 0

    def plan_for(self, problem):
        self.problems.append(problem)
        return self._plan(problem, self.algorithm)

    def _plan(self, problem, algorithm: str):
        def classical():
            return self._plan(problem, "classical")

        # With a fringe, so that calls like this one run the engine again, not generated code.
        recipe = None if algorithm == "vendor" else SimpleNamespace()
        chosen = SimpleNamespace(algorithm=algorithm, recipe=recipe, fringe=1)
        return SimpleNamespace(problem=problem, chosen=chosen, classical=classical)

    def pack(self, plan, b):
        assert plan.problem.static_b
        return SimpleNamespace(b=b, nbytes=2 * b.nbytes)

    def execute(self, plan, a, b, out, bias) -> bool:
        if not isinstance(b, np.ndarray):
            b = b.b
            self.packed_runs += 1
        assert a.ndim == b.ndim == out.ndim == 2
        assert a.dtype == b.dtype == out.dtype
        assert not np.shares_memory(out, a)
        assert not np.shares_memory(out, b)
        self.runs.append(plan.chosen.algorithm)
        if plan.chosen.algorithm != "classical" and not self.safe:
            out[...] = np.nan
            return False
        vendor.matmul(a, b, out, epilogue=plan.problem.epilogue, bias=bias)
        return True


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, plan_everything: None) -> Engine:
    """An engine in place of the compiled one, for tests of what it is asked to do."""
    fake = Engine()
    monkeypatch.setattr(product, "plan_for", fake.plan_for)
    monkeypatch.setattr(product, "execute", fake.execute)
    monkeypatch.setattr(repeated, "execute", fake.execute)
    monkeypatch.setattr(packed, "plan_for", fake.plan_for)
    monkeypatch.setattr(packed, "pack_operand", fake.pack)
    uncached: Callable = product._plan.__wrapped__
    monkeypatch.setattr(product, "_plan", uncached)
    return fake
