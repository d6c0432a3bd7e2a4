"""What cannot be written, and options without effect, are refused before anything runs."""

import sys

import pytest
from click.testing import CliRunner

from tiercel.cli import main


def refusal(*arguments: str) -> str:
    found = CliRunner().invoke(main, list(arguments))
    assert found.exit_code != 0
    assert isinstance(found.exception, SystemExit), "a message, not a traceback"
    return found.output


@pytest.mark.parametrize(
    "command",
    ["bench --plot", "bench --json", "bench --html", "map -o", "schemes --plot", "tune --export",
     "search 2 2 2 --output", "trace --save"],
)  # fmt: skip
def test_there_is_no_such_folder(command):
    said = refusal(*command.split(), "/no/such/folder/out.png")
    assert "there is no folder /no/such/folder; make it first" in said


@pytest.mark.parametrize("command", ["bench --plot", "map -o", "schemes --plot", "trace --plot"])
def test_no_picture_of_this_kind(command, tmp_path):
    assert "a picture ends in .png, .svg, .pdf" in refusal(*command.split(), f"{tmp_path}/a.foo")


def test_pictures_need_matplotlib(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    said = refusal("map", "-o", f"{tmp_path}/a.png")
    assert "needs matplotlib, which is not installed; pip install 'tiercel[bench]'" in said


@pytest.mark.parametrize("options", ["--regret", "--rows 5"])
def test_tune_without_products_has_nothing_to_judge(options):
    assert "name some by --shapes or --model" in refusal("tune", *options.split())


def test_a_map_goes_upwards(tmp_path):
    said = refusal("map", "-o", f"{tmp_path}/a.png", "--least", "100", "--most", "50")
    assert "--least 100 must be under --most 50" in said
