"""The result table in a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from tiercel.bench.columns import Cell, Column, columns
from tiercel.bench.peers import TIERCEL
from tiercel.bench.remarks import remarks
from tiercel.bench.results import CaseResult, Results
from tiercel.bench.summary import by_group, library_names

STYLES = {"": "", "good": "green", "bad": "red", "best": "bold"}
TITLE = (
    "effective GFLOP/s (2·M·N·K / median time); ratio: speed over the best peer's\n"
    "% peak: of the measured multiply-add rate; error: relative, beside an exact product"
)
SPACING = 3  # characters between columns: two of padding and the box's divider


def render(results: Results, width: int) -> Group:
    """A rich renderable: one table with a section per group, then the remarks.

    Columns that do not fit in ``width`` characters are left out, the least telling first.
    """
    shown = [result for result in results.cases if result.case.group != "random"]
    parts = [Text(TITLE, style="italic"), _table(results, shown, width)] if shown else []
    return Group(*parts, *(Text(line) for line in remarks(results)))


def fitting(candidates: Sequence[Column], rows: Sequence[CaseResult], width: int) -> list[Column]:
    """The columns that fit side by side, dropping whole ranks from the highest down."""
    kept = list(candidates)
    while sum(_width(column, rows) + SPACING for column in kept) - SPACING > width:
        highest = max(column.rank for column in kept)
        if highest == 0:
            break
        kept = [column for column in kept if column.rank < highest]
    return kept


def _table(results: Results, shown: Sequence[CaseResult], width: int) -> Table:
    kept = fitting(columns(results, library_names(shown)), shown, width)
    table = Table(
        box=SIMPLE_HEAD,
        padding=(0, 1),
        pad_edge=False,
        show_edge=False,
    )
    for column in kept:
        left = column.title == "M×N×K"
        style = "cyan" if column.title == TIERCEL else ""
        table.add_column(
            column.title, justify="left" if left else "right", style=style, no_wrap=True
        )
    for members in by_group(shown).values():
        for result in members:
            table.add_row(*(_text(column.cell(result)) for column in kept))
        table.add_section()
    return table


def _width(column: Column, rows: Sequence[CaseResult]) -> int:
    return max(len(text) for text in (column.title, *(column.cell(r).text for r in rows)))


def _text(cell: Cell) -> Text:
    return Text(cell.text, style=STYLES[cell.mark])
