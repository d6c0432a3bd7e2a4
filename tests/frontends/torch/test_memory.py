"""What happens where there is no memory for a workspace."""

import pytest
import torch

import tiercel
from tiercel.targets.cpu import workspace


def test_without_memory_for_a_workspace_torch_computes(monkeypatch):
    def full(nbytes):
        raise MemoryError("full")

    tiercel.release_workspace()
    monkeypatch.setattr(workspace, "_map", full)
    t = torch.ones(1600, 1600)
    for _ in range(2):
        assert (tiercel.matmul(t, t) == 1600).all()
    with pytest.raises(MemoryError, match="full"):
        tiercel.matmul(t, t, batch_invariant=True)
