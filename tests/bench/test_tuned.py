"""What a machine was found to be travels in a file, and is taken by machines like it only."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.planner.machines import MACHINE
from tests.planner.test_winners import measurement
from tiercel import runtime
from tiercel.bench import tuned
from tiercel.bench.tuned import Tuned
from tiercel.errors import TiercelValueError
from tiercel.planner import winners


def profile(dtype: str, fingerprint: str):
    return replace(
        MACHINE,
        tiles={dtype: MACHINE.tiles[dtype]},
        rates={dtype: MACHINE.rates[dtype]},
        fingerprint=fingerprint,
    )


@pytest.fixture
def like_this_one(empty_cache: Path, monkeypatch: pytest.MonkeyPatch):
    """The made-up machine's profiles, as if they were of this one."""
    monkeypatch.setattr(runtime, "fingerprint", lambda dtype: f"made-up-{dtype}")
    winners.forget()
    yield tuple(profile(dtype, f"made-up-{dtype}") for dtype in runtime.DTYPES)
    winners.forget()
    runtime.forget()


def test_round_trip(tmp_path: Path):
    made = Tuned((profile("float32", "a"),), (measurement(),))
    tuned.write(made, tmp_path / "tuned.json")
    read = tuned.read(tmp_path / "tuned.json")
    assert read.profiles == made.profiles
    assert read.measured[0].seconds == made.measured[0].seconds
    assert read.measured[0].key == made.measured[0].key


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 2}', '{"format": 1, "profiles": 3}'])
def test_other_files_are_refused(text: str, tmp_path: Path):
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(TiercelValueError, match=r"other\.json is not what `tiercel tune --export`"):
        tuned.read(path)


def test_a_machine_like_this_one_is_adopted(like_this_one):
    taken = tuned.adopt(Tuned(like_this_one, (measurement(),)))
    assert len(taken.profiles) == 2
    assert list(winners.known("made-up-float32")) == [measurement().key]
    assert not winners.known("made-up-float64")


def test_another_machine_is_not(like_this_one):
    with pytest.raises(TiercelValueError, match="Made-up CPU"):
        tuned.adopt(Tuned((profile("float32", "elsewhere"),), (measurement(),)))
    assert not winners.known("elsewhere")
