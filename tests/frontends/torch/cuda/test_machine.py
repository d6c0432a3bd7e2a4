"""What is measured of a GPU that no profile is shipped for, without one."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from tests.planner.gpu.h200 import H200
from tiercel.frontends.torch.cuda import machine as cuda_machine


@pytest.fixture
def unknown(monkeypatch, empty_cache):
    """A GPU that no profile is shipped for; its vendor's library runs at 10 TFLOP/s."""
    facts = SimpleNamespace(
        name="Made-up GPU", multi_processor_count=80, major=8, minor=6, total_memory=24 << 30
    )
    timed = []
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: facts)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: facts.name)
    monkeypatch.setattr(torch.cuda, "device", lambda device: torch.no_grad())
    monkeypatch.setattr(cuda_machine, "capturing", lambda: False)
    monkeypatch.setattr(cuda_machine, "_in_memory", {})
    squares = {side: cuda_machine.Timing(2 * side**3 / 1e13, 0.02) for side in (1024, 4096)}
    monkeypatch.setattr(cuda_machine, "_squares", lambda dtype: timed.append(dtype) or squares)
    monkeypatch.setattr(cuda_machine, "_timing", lambda call: cuda_machine.Timing(1e-3, 0.05))
    empty = torch.empty
    monkeypatch.setattr(
        torch, "empty", lambda *size, device=None, **kw: empty(*size, device="meta", **kw)
    )
    caches = (cuda_machine._known, cuda_machine.why_not_hopper)
    for cached in caches:
        cached.cache_clear()
    yield timed
    for cached in caches:
        cached.cache_clear()


def test_an_unknown_gpu_is_measured_once_for_a_dtype(unknown, monkeypatch):
    machine = cuda_machine.machine_for(0, torch.float32)
    assert machine.measured
    assert machine.copy == pytest.approx(2 * cuda_machine.COPIED / 1e6)
    assert machine.rates["float32"].at(4096) == pytest.approx(10.0)
    assert "timings within 5%" in str(machine)
    assert cuda_machine.machine_for(0, torch.float32) is machine
    monkeypatch.setattr(cuda_machine, "_in_memory", {})  # another process
    assert cuda_machine.machine_for(0, torch.float32) == machine
    assert unknown == [torch.float32]


def test_an_unknown_gpu_leaves_16_bits_and_captured_graphs_to_the_vendor(unknown, monkeypatch):
    assert cuda_machine.machine_for(0, torch.bfloat16).rates == {}
    monkeypatch.setattr(cuda_machine, "capturing", lambda: True)
    assert cuda_machine.machine_for(0, torch.float32).rates == {}
    assert unknown == []


def test_part_of_a_known_gpu_is_another_machine(unknown, monkeypatch):
    facts = torch.cuda.get_device_properties(0)
    facts.name, facts.multi_processor_count = "NVIDIA H200", 60
    cuda_machine._known.cache_clear()
    assert cuda_machine.machine_for(0, torch.float64).measured
    facts.multi_processor_count = 132
    cuda_machine._known.cache_clear()
    known = cuda_machine.machine_for(0, torch.float64)
    assert not known.measured
    assert known.memory == facts.total_memory
    assert known.plain is None, "no driver here"
    assert (
        replace(
            known,
            memory=H200.memory,
            prepare=0.0,
            plain=H200.plain,
            fused=H200.fused,
            plain_tf32=H200.plain_tf32,
            fused_tf32=H200.fused_tf32,
            notes={},
            fingerprint=H200.fingerprint,
        )
        == H200
    )


def test_timing_takes_the_median_of_turns(monkeypatch):
    turns = iter([3e-3, 1.0, 2.0, 9.0, 2.5, 2.2])
    monkeypatch.setattr(cuda_machine, "_elapsed", lambda call, count: next(turns))
    assert cuda_machine._timing(lambda: None) == (2.2, pytest.approx(8 / 2.2))
    counts = []
    monkeypatch.setattr(cuda_machine, "_elapsed", lambda call, count: counts.append(count) or 1e-4)
    cuda_machine._timing(lambda: None)
    assert counts == [1, *[math.ceil(10)] * 5]
