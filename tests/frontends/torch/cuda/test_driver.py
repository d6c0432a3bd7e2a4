"""What a GPU's management library tells belongs to its fingerprint; none is needed."""

import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch

from tiercel.frontends.torch.cuda import machine
from tiercel.frontends.torch.cuda.driver import DriverFacts, driver_facts

GPU = SimpleNamespace(
    name="NVIDIA H200", multi_processor_count=132, total_memory=141 << 30, uuid="1234-ab"
)


class Refused(Exception):
    """As NVML raises where it has no answer."""


class Library:
    """NVML with one GPU."""

    NVMLError = Refused

    def __init__(self) -> None:
        self.milliwatts, self.open = 700_000, 0

    def nvmlInit(self) -> None:
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.65.06"

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid != "GPU-1234-ab":
            raise Refused
        return uuid

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: str) -> int:
        return self.milliwatts


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    made = Library()
    monkeypatch.setitem(sys.modules, "pynvml", made)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: GPU)
    driver_facts.cache_clear()
    yield made
    driver_facts.cache_clear()
    assert made.open == 0


def test_driver_and_power_are_asked_for(library: Library):
    assert driver_facts(0) == DriverFacts("580.65.06", 700)


def test_a_gpu_that_is_told_nothing_of_is_no_error(
    library: Library, monkeypatch: pytest.MonkeyPatch
):
    part = SimpleNamespace(**{**vars(GPU), "uuid": "of a part"})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: part)
    assert driver_facts(0) == DriverFacts("", 0)


def test_the_library_may_be_missing(library: Library, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)  # importing it raises
    assert driver_facts(0) == DriverFacts("", 0)


def test_another_power_limit_is_another_fingerprint(library: Library):
    before = machine._fingerprint(0, "float32")
    assert "580.65.06" in before
    assert machine._fingerprint(0, "float32") == before
    library.milliwatts = 500_000
    driver_facts.cache_clear()
    assert machine._fingerprint(0, "float32") != before
