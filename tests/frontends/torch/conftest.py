"""A fixture that sends every eligible product to the kernels and records them."""

from dataclasses import replace
from importlib.util import find_spec

import pytest
import torch

from tiercel.frontends.torch import cpu
from tiercel.frontends.torch.routing import shortcut

#: Not collected without its packages, rather than skipped: CI's PyTorch lane installs them.
_NEEDED = ("transformers", "accelerate", "peft")
collect_ignore = [] if all(map(find_spec, _NEEDED)) else ["models/test_transformers.py"]


@pytest.fixture(autouse=True)
def same_random_numbers():
    """Comparisons within a tolerance succeed or fail every time."""
    torch.manual_seed(0)


@pytest.fixture
def kernel_runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int]]:
    """(M, N, K) of each product that a kernel computed; no product is too small or too slow."""
    runs: list[tuple[int, int, int]] = []
    plan_for, execute = cpu.plan_for, cpu.execute

    def always_planned(problem):
        return plan_for(replace(problem, scheme=problem.scheme or "classical", must_use=True))

    def recorded(plan, *operands):
        runs.append((plan.problem.M, plan.problem.N, plan.problem.K))
        return execute(plan, *operands)

    shortcut.forget()
    monkeypatch.setattr(cpu, "LEAST_WORK", dict.fromkeys(cpu.LEAST_WORK, 0))
    monkeypatch.setattr(cpu, "torch_is_fast_in", lambda dtype: False)
    monkeypatch.setattr(cpu, "LEAST_OF_A_STACK", 0)
    monkeypatch.setattr(cpu, "_plan", cpu._plan.__wrapped__)
    monkeypatch.setattr(cpu, "plan_for", always_planned)
    monkeypatch.setattr(cpu, "execute", recorded)
    return runs
