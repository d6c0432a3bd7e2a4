"""``tiercel explain --device``: the plan for a GPU that is not there."""

import json

from click.testing import CliRunner

from tiercel.cli import main


def explained(*arguments: str) -> str:
    found = CliRunner().invoke(main, ["explain", *arguments])
    assert found.exit_code == 0, found.output
    return found.output


def test_a_table_and_the_chosen_program():
    sizes = ("8192", "28672", "8192", "--dtype", "bf16", "--static", "b")
    lines = explained(*sizes, "--device", "NVIDIA H200", "--scheme", "winograd").splitlines()
    assert "NVIDIA H200 (shipped profile)" in lines[0]
    (marked,) = (line for line in lines if line.startswith("→"))
    assert marked.split()[1] == "winograd"
    assert any(line.startswith("inside one kernel, winograd: 7 multiplies") for line in lines)


def test_json_names_the_chosen_algorithm():
    data = json.loads(explained("4096", "4096", "4096", "--device", "NVIDIA H200", "--json"))
    assert data["algorithm"] == "strassen2"


def test_unknown_gpus_are_refused():
    found = CliRunner().invoke(main, ["explain", "64", "64", "64", "--device", "GeForce 256"])
    assert found.exit_code != 0
    assert "known: NVIDIA H200" in found.output
