"""A result as one self-contained HTML page: picture, table, machine; no outside file or script."""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape
from pathlib import Path

from tiercel.bench.columns import Cell, columns
from tiercel.bench.remarks import remarks
from tiercel.bench.results import Results
from tiercel.bench.summary import by_group, library_names

STYLE = """
:root { color-scheme: light dark; --ink: #1d2733; --paper: #fff; --rule: #d8dee6; --band: #f4f6f9;
  --good: #1a7f4b; --bad: #c0392b; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e9ef; --paper: #14181d; --rule: #313a45; --band: #1c2229;
    --good: #4cc38a; --bad: #ff7b6b; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }
figure { margin: 1.5rem 0; background: #fff; border-radius: 6px; }
figure svg { width: 100%; height: auto; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid var(--rule);
  white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
th[colspan] { text-align: left; background: var(--band); font-weight: 600; }
.good { color: var(--good); } .bad { color: var(--bad); } .best { font-weight: 700; }
pre { background: var(--band); padding: .8rem; overflow-x: auto; }
"""


def write_html(results: Results, path: Path, svg: str | None) -> None:
    """Write the page; ``svg`` is the picture's own text, or None for a page without one."""
    path.write_text(page(results, svg), encoding="utf-8")


def page(results: Results, svg: str | None) -> str:
    """The text of the page."""
    figure = f"<figure>{svg}</figure>" if svg else ""
    libraries = ", ".join(f"{name} {version}" for name, version in results.libraries.items())
    machine = json.dumps(results.machine, indent=1, ensure_ascii=False)
    lines = "".join(f"<li>{escape(line)}</li>" for line in remarks(results))
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>tiercel benchmark</title><style>{STYLE}</style></head><body>
<h1>tiercel benchmark</h1>
<p>{escape(str(results.machine.get("cpu", "")))}, {escape(results.date)}.
Effective GFLOP/s, 2·M·N·K / median time; <em>ratio</em> is tiercel's speed over the best peer's,
median of interleaved rounds.</p>
{figure}
<div class="scroll"><table>{_table(results)}</table></div>
<ul>{lines}</ul>
<h2>How it was made</h2>
<pre>{escape(results.command)}</pre>
<p>{escape(libraries)}</p>
<details><summary>Machine</summary><pre>{escape(machine)}</pre></details>
</body></html>
"""


def _table(results: Results) -> str:
    shown = columns(results, library_names(results.cases))
    rows = [_row(f"<th>{escape(column.title)}</th>" for column in shown)]
    for group, members in by_group(results.cases).items():
        rows.append(_row([f'<th colspan="{len(shown)}">{escape(group)}</th>']))
        rows += [_row(_cell(column.cell(result)) for column in shown) for result in members]
    return "\n".join(rows)


def _row(cells: Iterable[str]) -> str:
    return f"<tr>{''.join(cells)}</tr>"


def _cell(cell: Cell) -> str:
    mark = f' class="{cell.mark}"' if cell.mark else ""
    return f"<td{mark}>{escape(cell.text)}</td>"
