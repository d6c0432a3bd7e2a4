"""Patched models in the CUDA graphs of ``torch.compile(mode="reduce-overhead")``."""

import pytest
import torch
from torch import nn

import tiercel
from tests.gpu.portable import normal

pytestmark = pytest.mark.gpu

ROWS, WIDE, WIDER = 8192, 4096, 14336
REPLAYS = 5  # the first is run, the second captured


def model(trained: bool) -> nn.Module:
    made = nn.Sequential(
        nn.Linear(WIDE, WIDER, bias=False, device="meta"),
        nn.GELU(),
        nn.Linear(WIDER, WIDE, bias=False, device="meta"),
        nn.Linear(WIDE, WIDE, bias=False, device="meta"),
    )
    for i in (0, 2, 3):
        w = normal(*made[i].weight.shape, dtype=torch.bfloat16, seed=i) / made[i].in_features ** 0.5
        made[i].weight = nn.Parameter(w, requires_grad=trained)
    return made


def inputs():
    return [normal(ROWS, WIDE, dtype=torch.bfloat16, seed=20 + i) for i in range(REPLAYS)]


def assert_close(found, wanted):
    apart = (found.float() - wanted.float()).norm() / wanted.float().norm()
    assert apart.item() < 2e-2


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("packed", [False, True])
def test_a_frozen_model(packed):
    layers = model(trained=False)
    with torch.no_grad():
        wanted = [layers(x) for x in inputs()]
        with tiercel.patch(layers, pack_weights=packed):
            compiled = torch.compile(layers, mode="reduce-overhead", fullgraph=True)
            for x, y in zip(inputs(), wanted, strict=True):
                torch.compiler.cudagraph_mark_step_begin()
                assert_close(compiled(x), y)


def test_training_steps():
    layers = model(trained=True)

    def gradients(call, x):
        torch.compiler.cudagraph_mark_step_begin()
        layers.zero_grad()
        call(x).square().mean().backward()
        return [w.grad.clone() for w in layers.parameters()]

    wanted = [gradients(layers, x) for x in inputs()]
    with tiercel.patch(layers):
        compiled = torch.compile(layers, mode="reduce-overhead", fullgraph=True)
        for x, expected in zip(inputs(), wanted, strict=True):
            for found, grad in zip(gradients(compiled, x), expected, strict=True):
                assert_close(found, grad)
