"""Packed weights: only of frozen parameters, and never of a state that has passed."""

import copy
import gc
import weakref
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import tiercel
from tiercel.frontends.numpy import packed
from tiercel.frontends.torch import cpu


@pytest.fixture
def layer() -> nn.Linear:
    return nn.Linear(1024, 1024, bias=False).requires_grad_(False)


@pytest.fixture
def packed_runs(monkeypatch) -> list[bool]:
    """Whether each product that a kernel computed had its weight packed."""
    execute, runs = cpu.execute, []

    def recorded(plan, a, b, *rest):
        runs.append(type(b).__name__ == "Packed")
        return execute(plan, a, b, *rest)

    monkeypatch.setattr(cpu, "execute", recorded)
    monkeypatch.setattr(cpu, "_plan", cpu._plan.__wrapped__)
    return runs


@pytest.fixture(autouse=True)
def planned(monkeypatch):
    """Plans that choose a scheme whatever this machine's BLAS can do."""

    def strassen(problem):
        return plan_for(replace(problem, scheme="strassen", must_use=True))

    plan_for = cpu.plan_for
    monkeypatch.setattr(cpu, "plan_for", strassen)
    monkeypatch.setattr(packed, "plan_for", strassen)


def check(layer: Any, x: torch.Tensor) -> None:
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


def test_a_compiled_graph_counts_on_the_packed_form(layer, packed_runs, monkeypatch):
    predict, asked = cpu.predict, set()

    def recorded(product, options, packed_for):
        asked.add(packed_for)
        return predict(product, options, packed_for)

    tiercel.patch(layer, pack_weights=True)
    monkeypatch.setattr(cpu, "predict", recorded)
    torch._dynamo.reset()
    check(torch.compile(layer, fullgraph=True, backend="aot_eager"), torch.randn(300, 1024))
    assert asked == {frozen_of(layer)._packed.algorithm}
    assert packed_runs == [True]


def test_what_is_packed_stays_so_while_nothing_can_be_packed(layer, packed_runs, monkeypatch):
    report = tiercel.patch(layer, pack_weights=True)
    monkeypatch.setattr(cpu, "why_not_packed", lambda w: "a CUDA graph is being captured")
    check(layer, torch.randn(300, 1024))
    assert packed_runs == [True]
    assert report.packed_bytes > 0


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
    monkeypatch.setattr(cpu, "torch_is_fast_in", lambda dtype: False)
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


@pytest.mark.parametrize("release", ["unpatch", "deletion", "training"])
def test_memory_is_given_back(release, packed_runs):
    layer = nn.Linear(1024, 1024, bias=False).requires_grad_(False)
    tiercel.patch(layer, pack_weights=True)
    kept = weakref.ref(frozen_of(layer)._packed)
    assert kept() is not None
    if release == "unpatch":
        tiercel.unpatch(layer)
    elif release == "training":
        layer.requires_grad_(True)
        layer(torch.ones(2, 1024))
    else:
        del layer
        gc.collect()
    assert kept() is None


def frozen_of(layer: nn.Linear) -> Any:
    return vars(layer)["forward"].frozen


def test_a_write_through_data_to_all_of_a_weight_is_noticed(layer, packed_runs):
    x = torch.randn(256, 1024)
    tiercel.patch(layer, pack_weights=True)
    layer.weight.data.mul_(2)  # raises no version counter
    check(layer, x)
    layer.weight.data += torch.randn(1024, 8) @ torch.randn(8, 1024)  # as merging an adapter does
    check(layer, x)
    assert packed_runs == [True, True]


def test_after_a_write_through_data_to_a_part_patch_is_called_again(layer, packed_runs):
    x = torch.randn(256, 1024)
    tiercel.patch(layer, pack_weights=True)
    layer.weight.data[3:5, 7:9] = 40
    tiercel.patch(layer, pack_weights=True)
    check(layer, x)
    assert packed_runs == [True]


def test_freed_memory_that_comes_back_as_another_weight(packed_runs):
    x = torch.randn(256, 1024)
    for _ in range(4):  # the allocator gives each the memory of the one before
        layer = nn.Linear(1024, 1024, bias=False).requires_grad_(False)
        tiercel.patch(layer, pack_weights=True)
        check(layer, x)
        del layer


def test_an_outer_patch_packs_again_after_an_inner_one(layer, packed_runs):
    x = torch.randn(256, 1024)
    tiercel.patch(layer, pack_weights=True)
    with tiercel.patch(layer, pack_weights=True, accuracy="fast"):
        check(layer, x)
    check(layer, x)
    assert packed_runs == [True, True]


def test_parameters_are_converted_by_swapping(layer, packed_runs):
    tiercel.patch(layer, pack_weights=True)
    check(layer, torch.randn(256, 1024))
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        layer.double()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    x = torch.randn(256, 1024, dtype=torch.float64)
    torch.testing.assert_close(layer(x), x @ layer.weight.t())
    assert packed_runs == [True, True]


def test_a_sparse_weight_is_not_packed(layer):
    layer.weight = nn.Parameter(torch.eye(1024).to_sparse(), requires_grad=False)
    assert "not an ordinary matrix" in tiercel.patch(layer, pack_weights=True).layers[0].decision
    assert torch.equal(layer(torch.ones(300, 1024)), torch.ones(300, 1024))


class Adapted(nn.Module):
    """A low-rank adapter on a frozen layer, as PEFT writes it."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Parameter(torch.randn(8, 1024) / 32)
        self.up = nn.Parameter(torch.randn(1024, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + x @ self.down.t() @ self.up.t()


def test_an_adapter_on_a_packed_weight_counts_and_learns(layer, packed_runs):
    model, x = Adapted(layer), torch.randn(256, 1024)
    tiercel.patch(model, pack_weights=True)
    y = model(x)
    assert packed_runs == [True]
    expected = x @ (layer.weight + model.up @ model.down).t()
    torch.testing.assert_close(y, expected, rtol=1e-3, atol=1e-2)
    y.square().sum().backward()
    ours = model.up.grad
    (reference,) = torch.autograd.grad(expected.square().sum(), model.up)
    torch.testing.assert_close(ours, reference, rtol=1e-3, atol=1.0)


def test_a_compiled_model_uses_the_packed_form(layer, packed_runs):
    tiercel.patch(layer, pack_weights=True)
    compiled, x = torch.compile(layer, backend="aot_eager", fullgraph=True), torch.randn(256, 1024)
    torch.testing.assert_close(compiled(x), layer(x))
    layer.weight.add_(1)
    torch.testing.assert_close(compiled(x), layer(x))
    assert packed_runs == [True] * 4


def test_other_options_do_not_get_the_packed_form(layer, packed_runs):
    tiercel.patch(layer, pack_weights=True)
    x = torch.randn(256, 1024)
    tiercel.linear(x, layer.weight, accuracy="fast")
    assert packed_runs == [False]


def test_transforms_leave_packed_weights_alone(layer):
    x, w = torch.randn(64, 1024), torch.randn(1024, 1024)

    def total(w):
        return tiercel.linear(x, w).sum()

    with tiercel.patch(layer, pack_weights=True):
        found = torch.func.grad(total)(w)
    torch.testing.assert_close(found, x.sum(0).expand(1024, -1), rtol=1e-3, atol=1e-3)
