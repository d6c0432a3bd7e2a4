"""What the report says of layers that are trained. Without a GPU: a known profile."""

import pytest
import torch
from torch import nn

import tiercel
from tests.planner.gpu.h200 import H200
from tiercel.frontends.torch import engine
from tiercel.frontends.torch.cuda import engine as cuda
from tiercel.frontends.torch.models.forward import planned_forward


@pytest.fixture
def h200(monkeypatch):
    """Tensors of the CPU are planned as on that GPU."""
    monkeypatch.setitem(engine.ENGINES, "cpu", cuda.__name__)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: -1)
    monkeypatch.setattr(cuda, "machine_for", lambda device, dtype: H200)
    monkeypatch.setattr(cuda, "why_not_hopper", lambda device: "")
    engine.engine_for.cache_clear()
    cuda._plan.cache_clear()
    yield
    engine.engine_for.cache_clear()
    cuda._plan.cache_clear()


def test_layers_in_training_mode_show_what_runs_there(h200):
    with torch.device("meta"):
        wide, narrow = (nn.Linear(4096, n, bias=False, dtype=torch.bfloat16) for n in (14336, 1024))
    model = nn.ModuleList([wide, narrow]).to_empty(device="cpu")
    report = tiercel.patch(model)
    for layer, rows in ((wide, 16384), (narrow, 8192)):
        forward = planned_forward(layer)
        assert forward is not None
        forward.rows_seen[rows] = False

    def shown():
        return [layer.runs[0].algorithm for layer in report.layers]

    assert shown() == ["classical", "torch"]
    model.eval()
    assert shown() == ["winograd", "torch"]
