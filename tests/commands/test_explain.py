"""``tiercel explain``: the table, the listing, measured times and JSON."""

import json
import re

import pytest
from click.testing import CliRunner, Result

from tiercel.cli import main


def explain(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["explain", *arguments], prog_name="tiercel")


def test_the_listing_follows_the_table():
    result = explain("700", "720", "740", "--scheme", "strassen")
    assert result.exit_code == 0, result.output
    assert "inside the five loops, strassen: 7 products, grid 2×2×2" in result.output
    assert "P6 = " in result.output


def test_two_levels_say_where_each_runs():
    result = explain("4096", "4096", "4096", "--scheme", "strassen3", "--accuracy", "fast")
    assert "around the five loops, strassen: 7 products" in result.output
    assert re.search(r"inside the five loops, \S+: 49 products, grid 4×4×4", result.output)


def test_numpys_product_says_so():
    assert "vendor: np.matmul" in explain("8", "8", "8", "--scheme", "vendor").output


def test_measured_times_stand_beside_predicted_ones():
    result = explain("200", "210", "220", "--measure", "--seconds", "0.01", "--threads", "1")
    assert result.exit_code == 0, result.output
    header, *rows = result.output.splitlines()[1:6]
    assert "meas. ms" in header
    assert all(len(row.split()) >= 7 for row in rows)


def test_json_has_times_and_program():
    arguments = ["--measure", "--seconds", "0.01", "--dtype", "fp64", "--layout", "row,col"]
    result = explain("200", "210", "220", "--json", *arguments)
    data = json.loads(result.output)
    measured = {c["algorithm"]: c.get("measured_ms") for c in data["candidates"]}
    assert measured["vendor"] > 0
    assert measured["classical"] > 0
    assert data["dtype"] == "float64"
    assert data["program"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--layout", "diagonal"], "layout 'diagonal' is not known"),
        (["--accuracy", "0.5"], "accuracy=0.5 is not known"),
        (["--dtype", "int8"], "is not accelerated"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], message: str):
    result = explain("64", "64", "64", *arguments)
    assert result.exit_code == 1
    assert result.output.startswith("Error: ")
    assert message in result.output
