"""The number of multiprocessors that the kernels may occupy."""

import pytest

import tiercel
from tiercel.targets.hopper.launching import launch, occupancy


@pytest.fixture
def of_132(monkeypatch):
    monkeypatch.setattr(occupancy, "_multiprocessors", lambda device: 132)
    yield
    tiercel.set_num_sms(None)


def test_kernels_keep_to_it(of_132):
    assert occupancy.multiprocessors(0) == 132
    tiercel.set_num_sms(100)
    assert occupancy.multiprocessors(0) == 100
    tiercel.set_num_sms(500)
    assert occupancy.multiprocessors(0) == 132


def test_launches_prepared_for_another_number_are_forgotten(of_132):
    kept = {}
    launch.remember(kept, "a product", "its launch")
    tiercel.set_num_sms(64)
    assert kept == {}


@pytest.mark.parametrize("count", [0, 1, -3, 2.0, True, "all"])
def test_refused_numbers(count):
    with pytest.raises((tiercel.TiercelValueError, tiercel.TiercelTypeError), match="allowed"):
        tiercel.set_num_sms(count)
    assert occupancy.most_multiprocessors is None
