"""Profiles of GPUs: shipped ones are complete, and survive a round trip."""

import json

import pytest

from tiercel.errors import TiercelValueError
from tiercel.planner.gpu import GpuMachine, known_names, required, shipped
from tiercel.planner.problem import GPU_DTYPES


@pytest.mark.parametrize("name", known_names())
def test_shipped_profiles_know_every_dtype(name: str):
    machine = required(name)
    assert machine.name == name
    assert machine.rates.keys() == GPU_DTYPES.keys()
    for rates in machine.rates.values():
        sides = [side for side, _ in rates.vendor]
        assert sides == sorted(sides)
        assert all(0 < 1e3 * rate <= rates.peak for _, rate in rates.vendor)


@pytest.mark.parametrize("name", known_names())
def test_json_round_trip(name: str):
    assert GpuMachine.from_json(required(name).to_json()) == required(name)


def test_an_older_profile_knows_one_scheme():
    data = json.loads(required("NVIDIA H200").to_json())
    data["fused"] = {"multiply": 0.93, "left": 1.1, "out": 1.3}
    rates = GpuMachine.from_json(json.dumps(data)).fused
    assert list(rates) == ["winograd"]
    assert rates["winograd"].combine == pytest.approx(4091, abs=1)
    data["fused"] = None
    assert GpuMachine.from_json(json.dumps(data)).fused == {}


def test_rates_go_through_the_measured_points_and_stay_flat_outside():
    rates = required("NVIDIA H200").rates["float32"]
    for side, rate in rates.vendor:
        assert rates.at(side) == pytest.approx(rate)
    (first, low), *_, (last, high) = rates.vendor
    assert (rates.at(first / 2), rates.at(2 * last)) == (low, high)


def test_unknown_gpus():
    assert shipped("GeForce 256") is None
    with pytest.raises(TiercelValueError, match="'GeForce 256' is shipped; known: NVIDIA H200"):
        required("GeForce 256")


def test_a_machine_prints_its_figures():
    lines = str(required("NVIDIA H200")).splitlines()
    assert lines[0].startswith("NVIDIA H200, 132 multiprocessors, compute capability 9.0")
    assert any(line.startswith("  float32: vendor ") for line in lines)
