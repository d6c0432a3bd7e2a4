"""Where planner and targets meet: the current machine, cached plans, and running them."""

from __future__ import annotations

import hashlib
import logging
import os
import warnings
from contextlib import nullcontext
from dataclasses import replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tiercel.lower.blocking import blocking
from tiercel.lower.recipe import Recipe
from tiercel.lower.steps import sub_problem
from tiercel.planner import machine as profiles
from tiercel.planner.choose import make_plan
from tiercel.planner.machine import Machine, Rates
from tiercel.planner.plan import Plan
from tiercel.planner.problem import Problem

if TYPE_CHECKING:
    from tiercel.targets.cpu.packed import Packed

log = logging.getLogger("tiercel")

#: Version of what is measured: a change makes stored profiles obsolete.
PROFILE = 4


@lru_cache(maxsize=4096)
def plan_for(problem: Problem) -> Plan:
    """The plan of a problem on this machine; see ``planner/choose.py`` for errors."""
    if problem.scheme == "vendor":
        return make_plan(problem, _nothing_measured())
    return make_plan(problem, machine())


def execute(
    plan: Plan, a: np.ndarray, b: np.ndarray | Packed, out: np.ndarray, bias: np.ndarray | None
) -> bool:
    """Run a plan that chose an own kernel; False when the guard refused the data."""
    from tiercel.targets.cpu import kernel

    recipe = plan.chosen.recipe
    assert recipe is not None, "a plan for NumPy has nothing to execute"
    if not isinstance(b, np.ndarray):
        recipe = _for_packed(b.recipe, plan.problem)
    return kernel.execute(recipe, a, b, out, bias)


def pack(plan: Plan, b: np.ndarray) -> Packed:
    """Pack and sum ``b`` once for the plan's algorithm and any number of rows of A."""
    from tiercel.targets.cpu import kernel

    assert plan.chosen.recipe is not None, "a plan for NumPy packs nothing"
    return kernel.pack(plan.chosen.recipe, b)


@lru_cache(maxsize=4096)
def _for_packed(packed: Recipe, problem: Problem) -> Recipe:
    """The recipe of a packed operand with this problem's rows, threads and epilogue."""
    tile = machine().tiles[packed.compute]
    target = packed.blocking.target
    M, N, K = sub_problem(replace(packed, M=problem.M))
    block = blocking(M, N, K, packed.program, tile, target, sums=packed.outer is not None)
    return replace(
        packed, M=problem.M, blocking=block, threads=problem.threads, activation=problem.epilogue
    )


@cache
def machine() -> Machine:
    """This machine's profile, from the cache or measured now (about half a second)."""
    try:
        from tiercel.targets.cpu.isa import host, machine_name

        isa = host()
    except (ImportError, LookupError) as reason:
        return _unavailable(str(reason))
    fingerprint = hashlib.sha256(
        repr((PROFILE, machine_name(), isa, _cores(), np.__version__)).encode()
    ).hexdigest()[:16]
    return profiles.cached(fingerprint, lambda: _measure(fingerprint))


def _cores() -> int:
    from tiercel.targets.cpu.threads import cores

    return cores()


def _measure(fingerprint: str) -> Machine:
    from tiercel.targets.cpu import isa as isa_module
    from tiercel.targets.cpu import measure

    isa, cores = isa_module.host(), _cores()
    log.info("measuring this machine for the planner, once")
    rates = {dtype: _rates(dtype, cores, isa.lanes(dtype)) for dtype in ("float32", "float64")}
    return Machine(
        name=isa_module.machine_name(),
        isa=isa.name,
        cores=cores,
        l1=isa.l1,
        l2=isa.l2,
        l3=isa.l3,
        tiles={dtype: measure.tile(isa, dtype) for dtype in rates},
        rates=rates,
        fingerprint=fingerprint,
        measured=True,
    )


def _rates(dtype: str, cores: int, lanes: int) -> Rates:
    """Measured speeds, and per-cycle constants of the kernels turned into times."""
    from tiercel.targets.cpu import measure

    peak = measure.peak_gflops(dtype)
    cycles_per_ns = peak / (4 * lanes)  # two FMA pipes, two operations each
    square, long, short = measure.SQUARE, measure.LONG, measure.SHORT
    # Own kernels first: the threads of NumPy's BLAS go on spinning for a while after a product.
    own = measure.own_gflops(dtype, 1)
    own_all = measure.own_gflops(dtype, cores) if cores > 1 else own
    with _blas_limit(1):
        vendor = measure.vendor_gflops(dtype, square, square, square)
        skinny = [
            measure.vendor_gflops(dtype, *shape)
            for shape in ((short, long, long), (long, short, long), (long, long, short))
        ]
    with _blas_limit(cores):
        vendor_all = measure.vendor_gflops(dtype, square, square, square) if cores > 1 else vendor
    return Rates(
        peak=peak,
        kernel=KERNEL_SHARE,
        tile=TILE_CYCLES / cycles_per_ns,
        update=UPDATE_CYCLES / cycles_per_ns,
        sum_a=SUM_BYTES * cycles_per_ns,
        sum_b=SUM_BYTES * cycles_per_ns,
        stage=STAGE_BYTES * cycles_per_ns,
        store=STORE_BYTES * cycles_per_ns,
        vendor=vendor,
        half=tuple(max(0.0, short * (vendor / rate - 1)) for rate in skinny),  # type: ignore[arg-type]
        vendor_all_cores=max(vendor, vendor_all),
        scaling=max(1.0, own_all / own),
    )


#: The kernels in machine cycles (AVX2, Zen 3): share of peak in deep tiles, cycles a register tile
#: costs beside its multiplications and that one more destination adds, bytes a cycle of each stage.
KERNEL_SHARE, TILE_CYCLES, UPDATE_CYCLES = 0.97, 45.0, 36.0
SUM_BYTES, STAGE_BYTES, STORE_BYTES = 13.0, 2.8, 2.2


def _blas_limit(threads: int) -> Any:
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return nullcontext()
    return threadpool_limits(threads, user_api="blas")


def _nothing_measured(reason: str = "") -> Machine:
    """A machine without kernels of ours; its rates are only there to be printed."""
    rates = Rates(1, 1, 0, 0, 1, 1, 1, 1, 1, (0, 0, 0), 1, 1)
    return Machine(
        name="", isa="", cores=1, l1=0, l2=0, l3=0, tiles={},
        rates={"float32": rates, "float64": rates}, fingerprint="", measured=False,
        notes={"unavailable": reason},
    )  # fmt: skip


def _unavailable(reason: str) -> Machine:
    warnings.warn(f"tiercel uses NumPy's product: {reason}", RuntimeWarning, stacklevel=2)
    return _nothing_measured(reason)


def release_workspace() -> None:
    """Give the buffers that tiercel keeps between calls back to the system."""
    from tiercel.targets.cpu import workspace

    workspace.release()


def forget() -> None:
    """Forget plans and the machine profile (after a change of environment; for tests)."""
    plan_for.cache_clear()
    machine.cache_clear()
    os.environ.get("TIERCEL_ISA")
