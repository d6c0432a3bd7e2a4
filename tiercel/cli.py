"""The command line: ``tiercel env`` and ``tiercel cache``; ``commands/`` has the others."""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tiercel.commands.bench import bench
from tiercel.commands.crossover_map import crossover_map
from tiercel.commands.explain import explain
from tiercel.commands.regret import regret
from tiercel.commands.schemes import schemes
from tiercel.commands.search import search
from tiercel.commands.trace import trace
from tiercel.commands.tune import tune
from tiercel.errors import TiercelError


class ErrorsAsMessages(click.Group):
    """A group whose commands show tiercel's and the system's errors as one line, no traceback."""

    def main(self, *arguments: Any, **named: Any) -> Any:
        try:
            return super().main(*arguments, **named)
        except OSError as problem:  # a full disk behind stdout, a file that vanished
            click.echo(f"Error: {problem}", err=True)
            sys.exit(1)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TiercelError as problem:
            raise click.ClickException(str(problem)) from None


@click.group(cls=ErrorsAsMessages)
@click.version_option(package_name="tiercel")
def main() -> None:
    """A faster matrix product: fewer multiplications, no idle multiplier."""
    for stream in (sys.stdout, sys.stderr):  # which may not know Φ, × or →
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


main.add_command(bench)
main.add_command(explain)
main.add_command(crossover_map)
main.add_command(tune)
main.add_command(regret)
main.add_command(schemes)
main.add_command(search)
main.add_command(trace)


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


def _facts(title: str, facts: dict[str, Any]) -> Table:
    table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name.replace("_", " "), escape(str(value)))  # pip's brackets are no markup
    return table


def _machine_facts() -> dict[str, Any]:
    from tiercel.bench.environment import describe_machine
    from tiercel.runtime import machine

    return describe_machine() | {"profile": str(machine())}


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
