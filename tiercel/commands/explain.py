"""``tiercel explain``: what would run for a product, what would not, and why."""

from __future__ import annotations

import json
from typing import Any

import click

LAYOUT = click.Choice(["row", "col"])


@click.command()
@click.argument("m", type=click.IntRange(1))
@click.argument("n", type=click.IntRange(1))
@click.argument("k", type=click.IntRange(1))
@click.option("--dtype", default="float32", show_default=True)
@click.option("--layout", help="Layouts of A,B such as row,col.")
@click.option("--layout-a", type=LAYOUT, default="row", show_default=True)
@click.option("--layout-b", type=LAYOUT, default="row", show_default=True)
@click.option("--static", type=click.Choice(["b"]), help="B is constant and packed once.")
@click.option(
    "--accuracy", help="classical, standard, fast, or a bound on the error growth such as 3."
)
@click.option("--workspace", help='Most extra memory: bytes, or e.g. "256MiB".')
@click.option("--scheme", help="Use this scheme, e.g. strassen.")
@click.option("--threads", type=click.IntRange(1))
@click.option("--device", help='"cuda", or the name of a GPU that a profile is shipped for.')
@click.option("--measure", is_flag=True, help="Run the candidates in turns; medians are shown.")
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    default=3.0,
    show_default=True,
    help="Time for --measure; three rounds are run even if they take longer.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
def explain(
    m: int,
    n: int,
    k: int,
    dtype: str,
    layout: str | None,
    layout_a: str,
    layout_b: str,
    static: str | None,
    measure: bool,
    seconds: float,
    as_json: bool,
    **options: Any,
) -> None:
    """Show what would run for an M×K by K×N product, and what would not, and why.

    GFLOP/s are effective, 2·M·N·K over the time; % peak is their share of the measured multiply-add
    rate, over 100 where enough multiplications are saved. memory is taken beside A, B and C. error
    × is the expected error over the classical product's. Below the table stands what the choice
    computes, product by product.
    """
    import tiercel
    from tiercel.planner.describe import listing, table
    from tiercel.planner.problem import SHORT_NAMES

    if layout is not None:
        layout_a, _, layout_b = layout.partition(",")
        layout_b = layout_b or layout_a
    given = {name: value for name, value in options.items() if value is not None}
    if "accuracy" in given:
        given["accuracy"] = _accuracy(given["accuracy"])
    plan = tiercel.plan(
        m,
        n,
        k,
        dtype=SHORT_NAMES.get(dtype.lower(), dtype),
        layout_a=layout_a,
        layout_b=layout_b,
        static_b=static == "b",
        **given,
    )
    times = _measured(plan, seconds) if measure else {}
    if as_json:
        click.echo(json.dumps(_data(plan, times, listing(plan)), indent=1, default=str))
    else:
        click.echo(table(plan, times))
        click.echo(listing(plan))


def _measured(plan: Any, seconds: float) -> dict[str, float]:
    """Times of the candidates that run: on a CPU also of those that the budgets forbid.

    Raises ``TiercelRuntimeError`` for a GPU that is not here.
    """
    from tiercel.planner.gpu import GpuPlan

    if not isinstance(plan, GpuPlan):
        from tiercel.bench import candidates

        runnable = [c for c in plan.candidates if c.recipe is not None or c.algorithm == "vendor"]
        return candidates.measure(plan, runnable, seconds=seconds)
    from tiercel.bench.optional import require

    require("torch", "measuring on a GPU", "'tiercel[torch]'")
    from tiercel.bench import gpu_candidates

    gpu_candidates.require_device(plan.machine.name)
    allowed = [c for c in plan.candidates if not c.rejected]
    return gpu_candidates.measure(plan, allowed, seconds=seconds)


def _data(plan: Any, times: dict[str, float], program: str) -> dict[str, Any]:
    data = plan.to_json()
    for candidate in data["candidates"]:
        measured = times.get(candidate["algorithm"])
        if measured is not None:
            candidate["measured_ms"] = measured * 1e3
    return {**data, "program": program.splitlines()}


def _accuracy(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text
