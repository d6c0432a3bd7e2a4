"""``tiercel schemes``: table, JSON, one scheme, a check of a file."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tiercel import schemes
from tiercel.cli import main
from tiercel.schemes.notation import parse_equations

FIELDS = {"name", "m", "k", "n", "rank", "mark", "saving", "phi", "E", "additions", "nonzeros"}


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), prog_name="tiercel")


@pytest.fixture
def small_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole one takes seconds to evaluate."""
    monkeypatch.setattr(schemes, "names", lambda: ("strassen", "winograd", "strassen-3x2x2"))


@pytest.mark.usefixtures("small_catalogue")
def test_json_is_a_list_of_objects():
    result = invoke("schemes", "--json", "--all-orders")
    rows = json.loads(result.output)
    assert [row["name"] for row in rows] == ["strassen", "winograd", "strassen-3x2x2"]
    assert all(set(row) >= FIELDS for row in rows)
    assert rows[0] | {"rank": 7, "mark": 7, "phi": 32.0, "E": 12.0, "nonzeros": 36} == rows[0]


@pytest.mark.usefixtures("small_catalogue")
def test_table_shows_each_grid_in_one_order():
    output = invoke("schemes").output
    assert "strassen" in output
    assert "winograd" in output
    assert "3x2x2" not in output


@pytest.mark.usefixtures("small_catalogue")
def test_plot_draws_a_picture(tmp_path: Path):
    assert invoke("schemes", "--plot", str(tmp_path / "out.png")).exit_code == 0
    assert (tmp_path / "out.png").stat().st_size > 1000


@pytest.mark.parametrize("words", [("winograd",), ("2", "2", "2", "winograd")])
def test_show_prints_equations_that_can_be_read(words):
    result = invoke("schemes", "show", *words)
    assert result.exit_code == 0, result.output
    assert parse_equations((2, 2, 2), result.output) == schemes.get("winograd")


def test_show_takes_a_family_without_its_sizes():
    result = invoke("schemes", "show", "3", "2", "2", "strassen", "--json")
    assert schemes.loads(result.output) == schemes.get("strassen-3x2x2")


@pytest.mark.parametrize(
    ("words", "message"),
    [(("2", "2", "2", "gauss"), "strassen, winograd"), (("2", "2"), "three sizes")],
)
def test_show_says_what_there_is(words, message):
    result = invoke("schemes", "show", *words)
    assert result.exit_code == 1
    assert message in result.output


def test_check_accepts_and_refuses(tmp_path: Path):
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    text = schemes.dumps(schemes.get("strassen"))
    good.write_text(text, encoding="utf-8")
    bad.write_text(text.replace("[1, 0", "[2, 0", 1), encoding="utf-8")
    accepted, refused = invoke("schemes", "check", str(good)), invoke("schemes", "check", str(bad))
    assert accepted.exit_code == 0
    assert "exact, <2,2,2;7>" in accepted.output
    assert refused.exit_code == 1
    assert "Brent equation of A[" in refused.output
