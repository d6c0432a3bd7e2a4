"""The table in the documentation is the one that the shipped routes give."""

from pathlib import Path

from tiercel.lower.accumulator.search import shipped_names
from tiercel.lower.accumulator.ship import table_row

DOCS = Path(__file__).parents[3] / "docs" / "fused-schemes.md"


def test_table_shows_every_shipped_scheme_as_it_is():
    rows = [line for line in DOCS.read_text(encoding="utf-8").splitlines() if line[:2] == "| "]
    by_name = {row.split(" ")[1]: row for row in rows}
    for name in shipped_names():
        assert by_name.get(name) == table_row(name)
