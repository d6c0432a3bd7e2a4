"""Profiles survive the disk, and a damaged or older one is measured again."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.planner.machines import BARE, MACHINE
from tiercel import cache
from tiercel.planner import machine as profiles
from tiercel.planner.machine import Machine, cached


@pytest.mark.parametrize("machine", [MACHINE, BARE])
def test_json_round_trip(machine: Machine):
    assert Machine.from_json(machine.to_json()) == machine


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"tiles": {"float32": {"mr": 1}}}'])
def test_what_is_not_a_profile_raises(text: str):
    with pytest.raises((ValueError, KeyError, TypeError)):
        Machine.from_json(text)


def test_measured_once(empty_cache: Path):
    calls = []

    def measure() -> Machine:
        calls.append(1)
        return MACHINE

    assert cached("made-up", measure) == cached("made-up", measure) == MACHINE
    assert len(calls) == 1
    assert cached("another", measure) == MACHINE
    assert len(calls) == 2


def test_a_profile_of_a_busy_machine_is_measured_again(empty_cache: Path):
    now = time.time()
    late, fresh = replace(MACHINE, expires=now - 1), replace(MACHINE, expires=now + 1000)
    assert cached("made-up", lambda: late) == late
    assert cached("made-up", lambda: fresh) == fresh
    assert cached("made-up", lambda: MACHINE) == fresh


def test_profiles_of_two_dtypes_join():
    only = [
        replace(MACHINE, tiles={d: MACHINE.tiles[d]}, rates={d: r})
        for d, r in MACHINE.rates.items()
    ]
    assert only[0] | only[1] == MACHINE


def test_a_profile_of_another_version_is_replaced(empty_cache: Path):
    older = json.loads(MACHINE.to_json())
    del older["rates"]["float32"]["store"]
    cache.store("machine", "made-up", json.dumps(older).encode())
    assert cached("made-up", lambda: MACHINE) == MACHINE
    assert cached("made-up", lambda: BARE) == MACHINE


def test_reads_as_a_summary():
    text = str(MACHINE)
    assert text.startswith("Made-up CPU, 4 cores, avx2, L1 32 KiB, L2 512 KiB, L3 32768 KiB")
    assert "float32: peak 100 GFLOP/s a core, own kernel 97% of it, NumPy 90 on one core" in text


def test_a_shipped_profile_makes_the_first_call_right(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
):
    known = replace(MACHINE, kind="Made-up CPU, 4 cores")
    monkeypatch.setattr(profiles, "all_shipped", lambda: (BARE, known))
    facts = {"kind": "Made-up CPU, 4 cores", "dtype": "float64"}
    found = cached("here", lambda: pytest.fail("measured"), **facts)
    assert (found.fingerprint, list(found.rates)) == ("here", ["float64"])
    assert cache.load("machine", "here") is None
    own = replace(BARE, fingerprint="here")
    assert cached("here", lambda: own, kind="another", dtype="float64") == own
    assert cached("here", lambda: pytest.fail("measured"), **facts) == own, "measured here"


@pytest.mark.parametrize("machine", profiles.all_shipped(), ids=lambda machine: machine.kind)
def test_shipped_profiles_are_plausible(machine: Machine):
    assert machine.kind.startswith(machine.name)
    assert machine.rates.keys() == machine.tiles.keys() == {"float32", "float64"}
    for rates in machine.rates.values():
        assert 0.5 < rates.vendor / rates.peak < 1.05
        assert 0.5 * machine.cores < rates.scaling <= machine.cores
        assert 0.65 < rates.vendor_all_cores / rates.vendor / rates.scaling < 1.25
