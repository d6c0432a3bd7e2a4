"""Where planner and targets meet: the current machine, cached plans, and running them."""

from __future__ import annotations

import hashlib
import logging
import warnings
from contextlib import nullcontext
from dataclasses import replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tiercel.lower.blocking import blocking
from tiercel.lower.recipe import Recipe
from tiercel.lower.steps import sub_problem
from tiercel.planner import machine as profiles
from tiercel.planner.choose import make_plan
from tiercel.planner.machine import Machine, Rates
from tiercel.planner.plan import Plan
from tiercel.planner.problem import Problem
from tiercel.targets import vendor

if TYPE_CHECKING:
    from tiercel.targets.cpu.packed import Packed

log = logging.getLogger("tiercel")

#: Version of what is measured: a change makes stored profiles obsolete.
PROFILE = 15


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
        return kernel.execute(_for_packed(b.recipe, plan.problem), a, b, out, bias)
    if plan.chosen.fringe == 0:
        return kernel.execute(recipe, a, b, out, bias)
    N = recipe.N
    whole, rest = (None, None) if bias is None else (bias[:N], bias[N:])
    if not kernel.execute(recipe, a, b[:, :N], out[:, :N], whole):
        return False
    vendor.matmul(a, b[:, N:], out[:, N:], epilogue=recipe.activation, bias=rest)
    return True


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
    views = packed.outer.widest("b") if packed.outer else 0
    block = blocking(M, N, K, packed.program, tile, target, views=views)
    return replace(
        packed, M=problem.M, blocking=block, threads=problem.threads, activation=problem.epilogue
    )


def machine() -> Machine:
    """The profile of this machine, from the cache or measured now (about a second, once)."""
    try:
        from tiercel.targets.cpu.threads import allowed

        return _machine(allowed())
    except (ImportError, LookupError) as reason:
        return _unavailable(str(reason))


@lru_cache(maxsize=64)
def _machine(cores: int) -> Machine:
    """The profile for a process that may use ``cores`` cores."""
    from tiercel.targets.cpu.isa import host, machine_name

    isa = host()
    facts = repr((PROFILE, machine_name(), isa, cores, np.__version__))
    fingerprint = hashlib.sha256(facts.encode()).hexdigest()[:16]
    return profiles.cached(fingerprint, lambda: _measure(fingerprint, cores))


def _measure(fingerprint: str, cores: int) -> Machine:
    from tiercel.targets.cpu import isa as isa_module
    from tiercel.targets.cpu import measure

    isa = isa_module.host()
    log.info("measuring this machine for the planner, once")
    # Own kernels first: the threads of NumPy's BLAS go on spinning for a while after a product.
    own = {dtype: _own_speeds(dtype, cores) for dtype in ("float32", "float64")}
    rates = {dtype: _rates(dtype, cores, isa.lanes(dtype), own[dtype]) for dtype in own}
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


class OwnSpeeds(NamedTuple):
    """Peak of one core, GFLOP/s, and the speed-up of multiplying and of packing by all cores."""

    peak: float
    scaling: float
    memory_scaling: float


def _own_speeds(dtype: str, cores: int) -> OwnSpeeds:
    from tiercel.targets.cpu import measure

    peak = measure.peak_gflops(dtype)
    if cores == 1:
        return OwnSpeeds(peak, 1.0, 1.0)
    # The kernel scales nearly as bare multiply-adds do: threads share nothing but memory. Much less
    # says that the machine was busy just now.
    bare = max(1.0, measure.peak_gflops(dtype, repeats=16, threads=cores) / peak)
    kernel = measure.own_gflops(dtype, cores) / measure.own_gflops(dtype, 1)
    packing = measure.pack_gbs(dtype, cores) / measure.pack_gbs(dtype, 1)
    scaling = max(1.0, min(bare, max(0.95 * bare, kernel)))
    return OwnSpeeds(peak, scaling, max(cores**0.75, packing))


def _rates(dtype: str, cores: int, lanes: int, own: OwnSpeeds) -> Rates:
    """Measured speeds, and per-cycle constants of the kernels turned into times."""
    from tiercel.targets.cpu import measure

    cycles_per_ns = own.peak / (4 * lanes)  # two FMA pipes, two operations each
    square, long, short = measure.SQUARE, measure.LONG, measure.SHORT
    with _blas_limit(1):
        vendor = measure.vendor_gflops(dtype, square, square, square)
        skinny = [
            measure.vendor_gflops(dtype, *shape)
            for shape in ((short, long, long), (long, short, long), (long, long, short))
        ]
    with _blas_limit(cores):
        vendor_all = measure.vendor_gflops(dtype, square, square, square) if cores > 1 else vendor
    return Rates(
        peak=own.peak,
        kernel=KERNEL_SHARE,
        tile=TILE_CYCLES / cycles_per_ns,
        update=UPDATE_CYCLES / cycles_per_ns,
        sum_a=SUM_BYTES * cycles_per_ns,
        sum_b=SUM_BYTES * cycles_per_ns,
        stage=STAGE_BYTES * cycles_per_ns,
        store=STORE_BYTES * cycles_per_ns,
        read=READ_BYTES * cycles_per_ns,
        vendor=vendor,
        half=tuple(max(0.0, short * (vendor / rate - 1)) for rate in skinny),  # type: ignore[arg-type]
        vendor_all_cores=max(vendor, vendor_all),
        scaling=own.scaling,
        memory_scaling=own.memory_scaling,
    )


#: The kernels in machine cycles (AVX2, Zen 3): share of peak in deep tiles, cycles a register tile
#: costs beside its multiplications and that one more destination adds, bytes a cycle of each stage.
KERNEL_SHARE, TILE_CYCLES, UPDATE_CYCLES = 0.97, 45.0, 33.0
SUM_BYTES, STAGE_BYTES, STORE_BYTES = 15.0, 3.8, 3.0
#: Bytes a cycle that one core reads from memory.
READ_BYTES = 4.5


def _blas_limit(threads: int) -> Any:
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return nullcontext()
    return threadpool_limits(threads, user_api="blas")


def _nothing_measured(reason: str = "") -> Machine:
    """A machine without kernels of ours; its rates are only there to be printed."""
    rates = Rates(1, 1, 0, 0, 1, 1, 1, 1, 1, 1, (0, 0, 0), 1, 1, 1)
    return Machine(
        name="", isa="", cores=1, l1=0, l2=0, l3=0, tiles={},
        rates={"float32": rates, "float64": rates}, fingerprint="", measured=False,
        notes={"unavailable": reason},
    )  # fmt: skip


@cache
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
    _machine.cache_clear()
    _unavailable.cache_clear()
