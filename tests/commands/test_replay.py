"""Every scheme that a search found tells that search, and the search finds it again."""

import re
from concurrent.futures import ThreadPoolExecutor as ThreadPool
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tiercel import schemes
from tiercel.cli import main
from tiercel.commands.replay import recipe

FILES = Path(schemes.__file__).with_name("found").glob("*.json")
FOUND = sorted(path.stem.rsplit("-", 1)[0] for path in FILES)

# They came from searches that the present one, and the present catalogue, do not repeat.
EARLIER = {"lean-2x5x5", "lean-3x4x5", "lean-3x5x5"}


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["schemes", "replay", *arguments], prog_name="tiercel")


@pytest.mark.parametrize("name", sorted(EARLIER))
def test_provenance_says_what_cannot_be_repeated(name):
    assert recipe(schemes.get(name)) is None
    assert schemes.get(name).provenance.endswith("from an earlier catalogue")


@pytest.mark.parametrize("name", sorted(set(FOUND) - EARLIER))
def test_provenance_is_a_search_and_nothing_else(name):
    scheme = schemes.get(name)
    told = recipe(scheme)
    assert told is not None
    assert scheme.provenance.startswith(f"{told.settings.command} --rounds {told.rounds}: ")
    assert told.settings.grid == scheme.grid
    # What it starts from is named: the catalogue as a whole will change.
    assert not told.settings.catalogue
    assert told.settings.processes == 1


def test_no_scheme_starts_from_its_own_descendants():
    starts = {name: re.findall(r"--start (\S+)", schemes.get(name).provenance) for name in FOUND}
    while starts:
        ready = [name for name, given in starts.items() if not starts.keys() & given]
        assert ready, f"in a circle: {sorted(starts)}"
        for name in ready:
            del starts[name]


@pytest.mark.parametrize("name", ["lean-2x2x3", "accurate-2x2x3"])
def test_quick_searches_find_the_same_scheme_again(name):
    result = invoke(name, "--processes", "1")
    assert result.exit_code == 0, result.output
    assert result.output == f"{name}: the same\n"


@pytest.mark.slow
def test_searches_of_up_to_fifteen_seconds_find_the_same_schemes_again():
    result = invoke("--within", "15", "--processes", "2")
    assert result.exit_code == 0, result.output
    assert result.output.count("the same") >= 8


def test_another_scheme_is_reported(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tiercel.commands.replay.again", lambda _: False)
    monkeypatch.setattr("tiercel.commands.replay.ProcessPoolExecutor", lambda *_: ThreadPool(1))
    result = invoke("lean-2x2x3")
    assert result.exit_code == 1
    assert "1 of 1 differ: lean-2x2x3" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("winograd",), "not found by a search"), (("--within", "1"), "larger --within")],
)
def test_what_cannot_be_replayed_is_said(arguments, message):
    result = invoke(*arguments)
    assert result.exit_code == 1
    assert message in result.output
