"""``tiercel schemes``: the catalogue as a table, one scheme, or a check of a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from tiercel import schemes as library
from tiercel.commands.files import INPUT, PICTURE
from tiercel.commands.replay import replay
from tiercel.errors import TiercelValueError
from tiercel.schemes import Scheme


@click.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="A list of objects instead of a table.")
@click.option("--all-orders", is_flag=True, help="Every order of a grid, not only m ≤ k ≤ n.")
@click.option(
    "--plot",
    type=PICTURE,
    help="Draw saving against accuracy to this file (png, svg or pdf).",
)
@click.pass_context
def schemes(ctx: click.Context, as_json: bool, all_orders: bool, plot: Path | None) -> None:
    """List the catalogue: size, rank, published mark, accuracy and cost of each scheme."""
    if ctx.invoked_subcommand is not None:
        return
    listed = [
        scheme
        for scheme in map(library.get, library.names())
        if all_orders or list(scheme.grid) == sorted(scheme.grid)
    ]
    if plot is not None:
        from tiercel.bench.scheme_picture import write_scheme_picture

        write_scheme_picture(listed, plot)
        return
    rows = [_row(scheme) for scheme in listed]
    if as_json:
        click.echo(json.dumps(rows, indent=1))
    else:
        Console().print(_table(rows))


@schemes.command()
@click.argument("words", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="The scheme file instead of equations.")
def show(words: tuple[str, ...], as_json: bool) -> None:
    """Print a scheme: by NAME, by M K N NAME, or every one of M K N."""
    for scheme in _chosen(words):
        if as_json:
            click.echo(library.dumps(scheme), nl=False)
            continue
        from tiercel.schemes.notation import format_equations

        for name, value in _row(scheme).items():
            if value is not None:
                click.echo(f"# {name.replace('_', ' ')}: {value}")
        click.echo(f"# provenance: {scheme.provenance}")
        click.echo(format_equations(scheme))


@schemes.command()
@click.argument("path", type=INPUT)
@click.option("--grid", type=int, nargs=3, help="M K N, where the file does not say.")
@click.option("--c-transposed/--c-plain", default=None, help="How W of a foreign file is stored.")
def check(path: Path, grid: tuple[int, int, int] | None, c_transposed: bool | None) -> None:
    """Verify a scheme file exactly and say what the scheme is worth."""
    scheme = library.load(path, grid=grid, c_transposed=c_transposed)
    click.echo(f"{path}: exact, {scheme}")
    for name, value in _row(scheme).items():
        if name not in ("name", "m", "k", "n", "rank") and value is not None:
            click.echo(f"  {name.replace('_', ' ')}: {value}")


schemes.add_command(replay)


def _chosen(words: tuple[str, ...]) -> list[Scheme]:
    """``winograd``, ``2 2 2 winograd`` and ``2 2 2`` name schemes."""
    sizes = [int(word) for word in words if word.isdigit()]
    labels = [word for word in words if not word.isdigit()]
    if len(sizes) not in (0, 3) or len(labels) > 1:
        raise TiercelValueError(
            f"give a name, three sizes, or three sizes and a name: got {' '.join(words)!r}"
        )
    if not sizes:
        return [library.get(labels[0])]
    m, k, n = sizes
    found = library.find(m, k, n)
    if labels:
        found = [x for x in found if x.name in (labels[0], f"{labels[0]}-{m}x{k}x{n}")]
    if not found:
        known = ", ".join(x.name for x in library.find(m, k, n)) or "none"
        raise TiercelValueError(
            f"no scheme {' '.join(words)!r}: the catalogue has for <{m},{k},{n}>: {known}"
        )
    return list(found)


def _row(scheme: Scheme) -> dict[str, Any]:
    from tiercel.schemes.additions import reduced_additions
    from tiercel.schemes.marks import mark

    published = mark(scheme.grid)
    m, k, n = scheme.grid
    return {
        "name": scheme.name,
        "m": m,
        "k": k,
        "n": n,
        "rank": scheme.rank,
        "mark": published.rank if published else None,
        "saving": round(scheme.saving, 4),
        "phi": round(float(library.phi(scheme)), 4),
        "E": round(float(library.stability_factor(scheme)), 4),
        "additions": scheme.additions,
        # Ties are drawn: many tries for small schemes, one (20 ms) for those with 93 products.
        "shared_additions": reduced_additions(scheme, tries=max(1, min(8, 100 // scheme.rank))),
        "nonzeros": sum(scheme.nonzeros),
    }


def _table(rows: list[dict[str, Any]]) -> Table:
    """As wide as fits 80 columns: sizes in one column, figures rounded."""
    table = Table(box=None, padding=(0, 1, 0, 0))
    for heading in ("name", "size", "R", "mark", "saved", "Φ", "E", "adds", "shared", "non-zeros"):
        table.add_column(heading, justify="left" if heading == "name" else "right", no_wrap=True)
    for row in rows:
        table.add_row(
            row["name"],
            "{m}×{k}×{n}".format(**row),
            str(row["rank"]),
            "–" if row["mark"] is None else str(row["mark"]),
            f"{100 * (1 - 1 / row['saving']):.1f}%",
            f"{row['phi']:.1f}",
            f"{row['E']:.1f}",
            str(row["additions"]),
            str(row["shared_additions"]),
            str(row["nonzeros"]),
        )
    return table
