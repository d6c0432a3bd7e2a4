"""Fits a GPU's profile to measured products, and judges it by products that it has not seen.

Usage: ``python benchmarks/gpu_calibrate.py benchmarks/results/h200-candidates.json``

The file is an export of ``tiercel tune --device cuda --shapes``. Half of its products, drawn by a
seed, are fitted: the logarithms of predicted over measured times, by least squares with a loss that
does not follow outliers. Printed are the figures found, and errors and regret over both halves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from scipy.optimize import least_squares

from tiercel.bench.regret import regret
from tiercel.bench.replan import plan_of
from tiercel.bench.tuned import read
from tiercel.planner.gpu import GpuMachine, required
from tiercel.planner.gpu.machine import FusedRates
from tiercel.planner.winners import Measured

#: What products tell of: figures of a dtype, of the machine, and of the kernel with a scheme inside
#: ("winograd multiply").
RATES, SHARED, FUSED = ("batched", "ramp"), ("combine", "finish"), ("multiply", "combine", "out")

#: Logarithms of predicted over measured times beyond which a product counts as an outlier.
OUTLIER = 0.03


def with_factors(machine: GpuMachine, dtype: str, factors: dict[str, float]) -> GpuMachine:
    """The machine with some of its figures multiplied."""
    rates = machine.rates[dtype]
    curve = tuple(
        (side, rate * factors.get(f"vendor at {side}", 1.0)) for side, rate in rates.vendor
    )
    own = {name: getattr(rates, name) * factors.get(name, 1.0) for name in RATES}
    shared = {name: getattr(machine, name) * factors.get(name, 1.0) for name in SHARED}
    changes: dict[str, Any] = {**shared}
    if machine.plain is not None:
        rate = machine.plain.multiply * factors.get("plain", 1.0)
        changes["plain"] = replace(machine.plain, multiply=rate)
    changes["fused"] = {
        scheme: FusedRates(
            *(getattr(rates, name) * factors.get(f"{scheme} {name}", 1.0) for name in FUSED)
        )
        for scheme, rates in machine.fused.items()
    }
    new = replace(machine.rates[dtype], vendor=curve, **own)
    return replace(machine, rates={**machine.rates, dtype: new}, **changes)


def errors(products: Sequence[Measured], machine: GpuMachine) -> np.ndarray:
    """log(predicted / measured) of every candidate of every product."""
    found = []
    for m in products:
        predicted = {c.algorithm: c.seconds for c in plan_of(m, machine).candidates}
        found += [np.log(predicted[name] / t) for name, t in m.seconds.items() if name in predicted]
    return np.array(found)


def fitted(products: Sequence[Measured], machine: GpuMachine, free: Sequence[str]) -> GpuMachine:
    """The machine whose ``free`` figures fit the products best."""
    dtype = products[0].dtype

    def made(x: np.ndarray) -> GpuMachine:
        return with_factors(machine, dtype, dict(zip(free, np.exp(x), strict=True)))

    solved = least_squares(
        # A little pull to where a figure began: it stays there if nothing speaks of it.
        lambda x: np.concatenate([errors(products, made(x)), 0.02 * x]),
        np.zeros(len(free)), loss="soft_l1", f_scale=OUTLIER, diff_step=1e-3,
    )  # fmt: skip
    return made(solved.x)


def judged(products: Sequence[Measured], machine: GpuMachine) -> str:
    """Errors of times, and the regret of the choices whose time was measured."""
    seen = []
    for m in products:
        plan = plan_of(m, machine)
        if plan.chosen.algorithm in m.seconds:
            predicted = {c.algorithm: c.seconds for c in plan.candidates}
            seen.append(replace(m, planned=plan.chosen.algorithm,
                                predicted={x: predicted[x] for x in m.seconds}))  # fmt: skip
    spread = np.sqrt(np.mean(errors(products, machine) ** 2))
    unknown = len(products) - len(seen)
    return f"RMS error {spread:.1%}; {unknown} choices not measured; {regret(seen)}"


@click.command()
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@click.option("--dtype", default="float32", show_default=True)
@click.option("--free", multiple=True, help="Figures to fit; default: those of the vendor.")
@click.option("--seed", default=0, show_default=True, help="Of the halves.")
def main(file: Path, dtype: str, free: tuple[str, ...], seed: int) -> None:
    """Fit, print, judge."""
    found = read(file)
    products = [m for m in found.measured if m.dtype == dtype]
    machine = required(found.profiles[0].name)
    order = np.random.default_rng(seed).permutation(len(products))
    halves = [[products[i] for i in order[k::2]] for k in (0, 1)]
    curve = [f"vendor at {side}" for side, _ in machine.rates[dtype].vendor]
    best = fitted(halves[0], machine, [*curve, *free])
    click.echo(f"{best.rates[dtype]}")
    click.echo(f"combine {best.combine:.0f}, finish {best.finish:.0f}, plain {best.plain}")
    click.echo(f"{best.fused}")
    for name, half in zip(("fitted", "held out"), halves, strict=True):
        click.echo(f"{name} before: {judged(half, machine)}\n{name} after: {judged(half, best)}")


if __name__ == "__main__":
    main()
