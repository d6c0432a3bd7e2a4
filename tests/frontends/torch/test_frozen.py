"""Packed weights: only of frozen parameters, and never of a state that has passed."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

import tiercel
from tiercel.frontends.numpy import packed
from tiercel.frontends.torch import engine, operands


@pytest.fixture
def layer() -> nn.Linear:
    return nn.Linear(1024, 1024, bias=False).requires_grad_(False)


@pytest.fixture
def packed_runs(monkeypatch) -> list[bool]:
    """Whether each product that a kernel computed had its weight packed."""
    execute, runs = engine.execute, []

    def recorded(plan, a, b, *rest):
        runs.append(type(b).__name__ == "Packed")
        return execute(plan, a, b, *rest)

    monkeypatch.setattr(engine, "execute", recorded)
    monkeypatch.setattr(engine, "_plan", engine._plan.__wrapped__)
    return runs


@pytest.fixture(autouse=True)
def planned(monkeypatch):
    """Plans that choose a scheme whatever this machine's BLAS can do."""

    def strassen(problem):
        return plan_for(replace(problem, scheme="strassen", must_use=True))

    plan_for = engine.plan_for
    monkeypatch.setattr(engine, "plan_for", strassen)
    monkeypatch.setattr(packed, "plan_for", strassen)


def check(layer: nn.Linear, x: torch.Tensor) -> None:
    expected = (x.double() @ layer.weight.detach().double().t()).float()
    torch.testing.assert_close(layer(x).detach(), expected, rtol=1e-3, atol=1e-3)


def test_a_frozen_weight_is_packed_and_counted(layer, packed_runs):
    report = tiercel.patch(layer, pack_weights=True)
    assert report.packed_bytes > 0
    assert "MiB of packed weights" in str(report)
    check(layer, torch.randn(300, 1024))
    assert packed_runs == [True]
    tiercel.unpatch(layer)
    assert "forward" not in vars(layer)


def test_every_counted_change_packs_again(layer, packed_runs):
    x = torch.randn(256, 1024)
    tiercel.patch(layer, pack_weights=True)
    layer.weight.add_(1)
    check(layer, x)
    layer.load_state_dict({"weight": torch.randn(1024, 1024)})
    check(layer, x)
    layer.weight.data = torch.randn(1024, 1024)
    check(layer, x)
    layer.weight = nn.Parameter(torch.randn(1024, 1024), requires_grad=False)
    check(layer, x)
    copied = copy.deepcopy(layer)
    copied.weight.zero_()
    check(copied, x)
    check(layer, x)
    assert packed_runs == [True] * 6


def test_a_weight_in_training_is_not_packed(layer, packed_runs):
    x = torch.randn(256, 1024)
    tiercel.patch(layer, pack_weights=True)
    layer.requires_grad_(True)
    check(layer, x)
    assert packed_runs == [False]
    report = tiercel.patch(layer, pack_weights=True)
    assert "not frozen" in report.layers[0].decision
    assert report.packed_bytes == 0


def test_autocast_leaves_the_packed_form_alone(layer, packed_runs, monkeypatch):
    monkeypatch.setattr(operands, "torch_is_fast_in", lambda dtype: False)
    tiercel.patch(layer.half(), pack_weights=True)
    x = torch.randn(256, 1024, dtype=torch.float16)
    expected = x.bfloat16() @ layer.weight.t().bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(layer(x), expected, rtol=0.05, atol=0.05)
    layer(x)
    assert packed_runs == [False, True]


def test_gradients_pass_through_a_packed_weight(layer, packed_runs):
    tiercel.patch(layer, pack_weights=True)
    x = torch.randn(256, 1024, requires_grad=True)
    layer(x).sum().backward()
    assert packed_runs == [True, False]
    torch.testing.assert_close(x.grad, layer.weight.sum(0).expand(256, 1024), rtol=1e-3, atol=1e-3)
