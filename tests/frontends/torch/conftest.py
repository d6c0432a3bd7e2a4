"""A fixture that sends every eligible product to the kernels and records them."""

from dataclasses import replace

import pytest

from tiercel.frontends.torch import engine, operands


@pytest.fixture
def kernel_runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int]]:
    """(M, N, K) of each product that a kernel computed; no product is too small or too slow."""
    runs: list[tuple[int, int, int]] = []
    plan_for, execute = engine.plan_for, engine.execute

    def always_planned(problem):
        return plan_for(replace(problem, scheme=problem.scheme or "classical", must_use=True))

    def recorded(plan, *operands):
        runs.append((plan.problem.M, plan.problem.N, plan.problem.K))
        return execute(plan, *operands)

    monkeypatch.setattr(operands, "LEAST_WORK", dict.fromkeys(operands.LEAST_WORK, 0))
    monkeypatch.setattr(operands, "torch_is_fast_in", lambda dtype: False)
    monkeypatch.setattr(engine, "LEAST_OF_A_STACK", 0)
    monkeypatch.setattr(engine, "_plan", engine._plan.__wrapped__)
    monkeypatch.setattr(engine, "plan_for", always_planned)
    monkeypatch.setattr(engine, "execute", recorded)
    return runs
