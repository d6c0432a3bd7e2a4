"""The command line: ``tiercel bench``, ``env``, ``explain`` and ``cache``."""

from __future__ import annotations

import json
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from tiercel.bench.command import bench
from tiercel.errors import TiercelError

LAYOUT = click.Choice(["row", "col"])


class ErrorsAsMessages(click.Group):
    """A group whose commands show tiercel's own errors as one line instead of a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TiercelError as problem:
            raise click.ClickException(str(problem)) from None


@click.group(cls=ErrorsAsMessages)
@click.version_option(package_name="tiercel")
def main() -> None:
    """A faster matrix product: fewer multiplications, no idle multiplier."""


main.add_command(bench)


@main.command()
def env() -> None:
    """Show the machine, the libraries and the cache folder."""
    from tiercel.bench.environment import package_versions, slowing_variables

    console = Console()
    console.print(_facts("machine", _machine_facts()))
    console.print(_facts("BLAS and peers", _blas_facts()))
    console.print(_facts("packages", package_versions()))
    console.print(_facts("cache", _cache_facts()))
    for name, value in slowing_variables().items():
        console.print(f"{name}={value} is set and can slow a peer; benchmarks run without it")


@main.command()
@click.argument("m", type=click.IntRange(0))
@click.argument("n", type=click.IntRange(0))
@click.argument("k", type=click.IntRange(0))
@click.option("--dtype", default="float32", show_default=True)
@click.option("--layout-a", type=LAYOUT, default="row", show_default=True)
@click.option("--layout-b", type=LAYOUT, default="row", show_default=True)
@click.option("--static", type=click.Choice(["b"]), help="B is constant and packed once.")
@click.option(
    "--accuracy", help="classical, standard, fast, or a bound on the error growth such as 3."
)
@click.option("--workspace", help='Most extra memory: bytes, or e.g. "256MiB".')
@click.option("--scheme", help="Use this scheme, e.g. strassen.")
@click.option("--threads", type=click.IntRange(1))
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
def explain(
    m: int,
    n: int,
    k: int,
    dtype: str,
    layout_a: str,
    layout_b: str,
    static: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Show what would run for an M×K by K×N product, and what would not, and why."""
    import tiercel

    given = {name: value for name, value in options.items() if value is not None}
    if "accuracy" in given:
        given["accuracy"] = _accuracy(given["accuracy"])
    plan = tiercel.plan(
        m,
        n,
        k,
        dtype=_full_dtype(dtype),
        layout_a=layout_a,
        layout_b=layout_b,
        static_b=static == "b",
        **given,
    )
    click.echo(json.dumps(plan.to_json(), indent=1, default=str) if as_json else str(plan))


@main.group()
def cache() -> None:
    """The on-disk cache of compiled kernels and machine profiles."""


@cache.command()
def info() -> None:
    """Show where the cache is and what it holds."""
    Console().print(_facts("cache", _cache_facts()))


@cache.command()
def clear() -> None:
    """Delete everything in the cache."""
    from tiercel import cache as disk

    disk.clear()
    click.echo(f"cleared {disk.cache_dir()}")


DTYPE_NAMES = {"fp32": "float32", "fp64": "float64", "fp16": "float16", "bf16": "bfloat16"}


def _full_dtype(name: str) -> str:
    return DTYPE_NAMES.get(name.lower(), name)


def _accuracy(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text


def _facts(title: str, facts: dict[str, Any]) -> Table:
    table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name.replace("_", " "), str(value))
    return table


def _machine_facts() -> dict[str, Any]:
    from tiercel.bench.environment import describe_machine

    facts = describe_machine()
    return facts | facts.pop("profile")


def _blas_facts() -> dict[str, Any]:
    from tiercel.bench.blas_info import loaded_blas
    from tiercel.bench.peers import TIERCEL
    from tiercel.bench.roster import LIBRARIES

    facts = {"numpy's BLAS": loaded_blas("numpy")}
    for name, source in LIBRARIES.items():
        if name not in (TIERCEL, "numpy"):
            facts[name] = "found" if source.is_present() else f"not found ({source.get_it})"
    return facts


def _cache_facts() -> dict[str, Any]:
    from tiercel import cache as disk

    held = disk.info()
    kinds = {f"  {kind}": _amount(k.files, k.bytes) for kind, k in held.kinds.items()}
    facts = {"folder": held.path, "entries": _amount(held.files, held.bytes), **kinds}
    if held.in_memory:
        facts["in memory only"] = held.in_memory
    if held.refused:
        facts["not used because"] = held.refused
    return facts


def _amount(files: int, size: int) -> str:
    return f"{files} ({size / 2**20:.1f} MiB)"
