"""Where planner and targets meet: the current machine, cached plans, and running them."""

from __future__ import annotations

import logging
import warnings
from dataclasses import replace
from functools import cache, lru_cache, reduce
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from tiercel import counters
from tiercel.errors import TiercelRuntimeError
from tiercel.lower.blocking import blocking
from tiercel.lower.recipe import Recipe
from tiercel.lower.steps import sub_problem
from tiercel.planner import machine as profiles
from tiercel.planner import winners
from tiercel.planner.choose import make_plan
from tiercel.planner.machine import Machine, Rates
from tiercel.planner.plan import Plan
from tiercel.planner.problem import Problem
from tiercel.targets import vendor

if TYPE_CHECKING:
    from tiercel.targets.cpu.packed import Packed

DTYPES = ("float32", "float64")

log = logging.getLogger("tiercel")


@lru_cache(maxsize=4096)
def plan_for(problem: Problem) -> Plan:
    """The plan of a problem on this machine; see ``planner/choose.py`` for errors."""
    if problem.scheme == "vendor":
        return make_plan(problem, _nothing_measured())
    plan = winners.applied(make_plan(problem, machine((problem.compute,))))
    log.debug("planned %s", plan)
    return plan


def execute(
    plan: Plan, a: np.ndarray, b: np.ndarray | Packed, out: np.ndarray, bias: np.ndarray | None
) -> bool:
    """Run a plan that chose an own kernel, and count it.

    False when the guard refused the data, or there is no memory for the plan's workspace.
    """
    recipe = plan.chosen.recipe
    assert recipe is not None, "a plan for NumPy has nothing to execute"
    start = perf_counter()
    try:
        done = _execute(plan, recipe, a, b, out, bias)
    except MemoryError:
        if plan.problem.must_use:
            raise
        done = False  # what runs instead needs less
    seconds = perf_counter() - start
    counters.record(plan, seconds, recipe.multiplications_saved if done else 0, refused=not done)
    if not done:
        log.debug("the data were refused for %s: %s", plan.chosen.algorithm, plan.problem)
    return done


def _execute(
    plan: Plan, recipe: Recipe, a: np.ndarray, b: np.ndarray | Packed, out: np.ndarray,
    bias: np.ndarray | None,
) -> bool:  # fmt: skip
    from tiercel.targets.cpu import kernel

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
    tile = machine((packed.compute,)).tiles[packed.compute]
    target = packed.blocking.target
    M, N, K = sub_problem(replace(packed, M=problem.M))
    views = packed.outer.widest("b") if packed.outer else 0
    block = blocking(M, N, K, packed.program, tile, target, views=views)
    return replace(
        packed, M=problem.M, blocking=block, threads=problem.threads, activation=problem.epilogue
    )


def machine(dtypes: tuple[str, ...] = DTYPES) -> Machine:
    """The profile of this machine for some compute dtypes.

    Read from the cache, or measured now: a second per dtype, once.
    """
    try:
        from tiercel.targets.cpu.compile import pool_functions
        from tiercel.targets.cpu.threads import allowed

        pool_functions()  # a stored profile does not tell whether code may be loaded
        parts = [_machine(allowed(), dtype) for dtype in dtypes]
    except (ImportError, LookupError) as reason:
        return _unavailable(str(reason))
    return reduce(Machine.__or__, parts)


@lru_cache(maxsize=64)
def _machine(cores: int, dtype: str) -> Machine:
    """The profile for a process that may use ``cores`` cores."""
    from tiercel import calibration

    key = calibration.fingerprint(cores, dtype)
    return profiles.cached(
        key,
        lambda: calibration.profile(key, cores, dtype),
        kind=calibration.kind(cores),
        dtype=dtype,
    )


def fingerprint(dtype: str) -> str:
    """Names the profile of this machine for a compute dtype; "" where there are no kernels."""
    from tiercel import calibration

    try:
        from tiercel.targets.cpu.threads import allowed

        return calibration.fingerprint(allowed(), dtype)
    except (ImportError, LookupError):
        return ""


def measure_again(dtypes: tuple[str, ...] = DTYPES) -> Machine:
    """Measure this machine now, replace the stored profile, and forget plans made with it.

    Raises ``TiercelRuntimeError`` where tiercel has no kernels.
    """
    from tiercel import calibration

    try:
        from tiercel.targets.cpu.threads import allowed

        cores = allowed()
        for dtype in dtypes:
            key = calibration.fingerprint(cores, dtype)
            profiles.keep(calibration.profile(key, cores, dtype))
    except (ImportError, LookupError) as reason:
        raise TiercelRuntimeError(
            f"nothing to measure: {reason}; products are NumPy's on this machine"
        ) from None
    forget()
    return machine(dtypes)


def _nothing_measured(reason: str = "") -> Machine:
    """A machine without kernels of ours; its rates are only there to be printed."""
    rates = Rates(1, 1, 0, 0, 1, 1, 1, 1, 1, 1, (0, 0, 0), (0, 0), 1, (0, 0, 0), 1, 1)
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
    winners.forget()
    _machine.cache_clear()
    _unavailable.cache_clear()
