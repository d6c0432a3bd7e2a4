"""``tiercel search`` from the command line."""

import os
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tiercel import schemes
from tiercel.cli import main


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["search", *arguments], prog_name="tiercel")


def test_finds_strassen_and_writes_it(tmp_path: Path):
    path = tmp_path / "found.json"
    options = ["--from-classical", "--seed", "3", "--output", str(path)]
    result = invoke("2", "2", "2", *options)
    assert result.exit_code == 0, result.output
    found = schemes.load(path)
    assert found.rank == 7
    assert "--seed 3" in found.provenance
    assert "--from-classical" in found.provenance


def test_prints_equations_and_keeps_state(tmp_path: Path):
    arguments = ["--minutes", "0.02", "--objective", "traffic", "--state", str(tmp_path)]
    result = invoke("2", "2", "2", *arguments)
    assert result.exit_code == 0, result.output
    assert "c22 = " in result.output
    assert (tmp_path / "mod2.npz").exists()


def test_interrupt_ends_the_round_and_writes_what_there_is(monkeypatch: pytest.MonkeyPatch):
    def interrupt(_: object) -> str:
        os.kill(os.getpid(), signal.SIGINT)
        return ""

    monkeypatch.setattr("tiercel.commands.search._status", interrupt)
    result = invoke("2", "2", "2", "--objective", "nonzeros", "--minutes", "5")
    assert result.exit_code == 0, result.output
    assert "<2,2,2;7>" in result.output


def test_starts_from_a_file(tmp_path: Path):
    path = tmp_path / "start.json"
    path.write_text(schemes.dumps(schemes.get("laderman")), encoding="utf-8")
    result = invoke("3", "3", "3", "--from-classical", "--start", str(path))
    assert result.exit_code == 0, result.output
    assert "<3,3,3;23>" in result.output


def test_starts_from_a_name_of_the_catalogue():
    result = invoke("3", "3", "3", "--from-classical", "--start", "laderman", "--rounds", "5")
    assert result.exit_code == 0, result.output
    assert "--from-classical --start laderman --rounds 1: " in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("2", "2", "3", "--symmetry", "01,2"), "cube"),
        (("3", "3", "3", "--symmetry", "01"), "partition"),
        (("3", "3", "3", "--start", "ladermann"), "neither a file nor a name"),
        (("9", "9", "9", "--ring", "mod2"), "smaller grid"),
        (("2", "2", "2", "--rank", "6", "--minutes", "0.001"), "more --minutes"),
    ],
)
def test_mistakes_are_one_line(arguments, message):
    result = invoke(*arguments)
    assert result.exit_code == 1
    assert message in result.output
    assert "Traceback" not in result.output
