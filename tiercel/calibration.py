"""What the planner must know of this machine: measured once per compute dtype, in a second.

Machines are shared, so what counts is measured as a *ratio*: NumPy's product beside tiercel's own,
in turns, and the ratio applied to the rate that the cost model gives tiercel's. A busy neighbour
slows both. Only products on all cores are measured one library after the other, since the threads
of NumPy's BLAS go on spinning for a while; an implausible result is measured again.
"""

from __future__ import annotations

import hashlib
import logging
import time
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from tiercel.lower.blocking import blocking
from tiercel.lower.program import lower
from tiercel.planner.cost import from_memory, kernel_seconds
from tiercel.planner.machine import Machine, Rates
from tiercel.planner.problem import Problem

log = logging.getLogger("tiercel")

#: Version of what is measured: a change makes stored profiles obsolete.
VERSION = 23

#: The kernels in machine cycles (AVX2, Zen 3): share of peak in deep tiles, cycles a register tile
#: costs beside its multiplications and that one more destination adds, for each of its bytes; bytes
#: a cycle of each stage.
KERNEL_SHARE, TILE_CYCLES, UPDATE_CYCLES = 0.97, 45.0, 33.0 / 384
SUM_A_BYTES, SUM_B_BYTES, STAGE_BYTES, STORE_BYTES = 15.0, 20.0, 3.8, 3.0
#: Bytes a cycle that one core reads from memory.
READ_BYTES = 4.5

#: On an idle machine a process gets this share of the cores. A profile measured with less is kept
#: for so many seconds, with at least a typical scaling.
IDLE, BUSY_PROFILE, TYPICAL = 0.85, 600, 0.75

#: Sides at which NumPy's rate halves were 9 to 14 on one core and 12 to 32 on two, in quiet hours
#: (float32, Zen 3); a disturbed measurement said 109.
MOST_HALF = 40.0

#: Packing gains this share of what multiplying gains from more cores (two cores: 1.8 of 1.9), up to
#: so much: 16 threads form sums at 160 GB/s in float32 and 62 in float64, one at 42.
PACKING, MOST_PACKING = 0.95, 6.0

#: Both libraries are about as fast on all cores, or the machine was busy for one of them just then:
#: measured again, so many times, after seconds in which NumPy's threads stop spinning.
ALIKE, TRIES, SPIN = (0.9, 1.15), 4, 0.1


def fingerprint(cores: int, dtype: str) -> str:
    """Names what a profile depends on: CPU, instruction set, cores allowed, NumPy, dtype."""
    from tiercel.targets.cpu.isa import host, machine_name

    facts = repr((VERSION, machine_name(), host(), cores, np.__version__, dtype))
    return hashlib.sha256(facts.encode()).hexdigest()[:16]


def kind(cores: int) -> str:
    """Names the machines that a shipped profile holds for, without what hardly changes its figures.

    That is the build of NumPy: only its BLAS counts.
    """
    from tiercel.targets.cpu.isa import host, machine_name

    isa = host()
    caches = "/".join(str(size >> 10) for size in (isa.l1, isa.l2, isa.l3))
    return f"{machine_name()} ({isa.cpu}, {isa.name}), {caches} KiB, {cores} cores, {_blas()}"


def _blas() -> str:
    """The library that NumPy was built with."""
    built: Any = np.show_config(mode="dicts")
    return built.get("Build Dependencies", {}).get("blas", {}).get("name", "unknown BLAS")


def profile(key: str, cores: int, dtype: str) -> Machine:
    """Measure one compute dtype on this machine."""
    from tiercel.targets.cpu import isa as isa_module
    from tiercel.targets.cpu import measure

    log.info("measuring this machine for the planner, once (%s)", dtype)
    isa = isa_module.host()
    peak = measure.peak_gflops(dtype)
    cycles_per_ns, tile = measure.cycles_per_ns(dtype, peak), measure.tile(isa, dtype)
    rates = Rates(
        peak=peak,
        kernel=KERNEL_SHARE,
        tile=TILE_CYCLES / cycles_per_ns,
        update=UPDATE_CYCLES * tile.mr * tile.nr * tile.size / cycles_per_ns,
        sum_a=SUM_A_BYTES * cycles_per_ns,
        sum_b=SUM_B_BYTES * cycles_per_ns,
        stage=STAGE_BYTES * cycles_per_ns,
        store=STORE_BYTES * cycles_per_ns,
        read=READ_BYTES * cycles_per_ns,
        vendor=peak,
        half=(0.0, 0.0, 0.0),
        half_columns=(0.0, 0.0),
        vendor_all_cores=peak,
        half_all_cores=(0.0, 0.0, 0.0),
        scaling=1.0,
        memory_scaling=1.0,
    )
    machine = Machine(
        name=isa_module.machine_name(),
        isa=isa.name,
        cores=cores,
        l1=isa.l1,
        l2=isa.l2,
        l3=isa.l3,
        tiles={dtype: tile},
        rates={dtype: rates},
        fingerprint=key,
        measured=True,
        kind=kind(cores),
    )
    machine = _numpy_on_one_core(machine, dtype)
    return machine if cores == 1 else _on_all_cores(machine, dtype)


def _numpy_on_one_core(machine: Machine, dtype: str) -> Machine:
    """NumPy's product beside tiercel's, and in skinny shapes."""
    from tiercel.targets.cpu import measure

    n = measure.SQUARE
    with _blas_limit(1):
        vendor = measure.vendor_share(dtype) * _predicted_gflops(machine, dtype, 1)
        square = measure.vendor_gflops(dtype, n, n, n)
        half = _halves(machine, dtype, square)
        half_columns = _halves(machine, dtype, square, columns=True)[:2]  # along K nothing changes
    # What it reaches where all sizes are large.
    vendor *= 1 + sum(half) / n * from_memory(Problem(n, n, n, dtype), machine)
    return _with(
        machine, dtype, vendor=vendor, half=half, half_columns=half_columns,
        vendor_all_cores=vendor, half_all_cores=half,
    )  # fmt: skip


def _halves(
    machine: Machine, dtype: str, square: float, *, columns: bool = False
) -> tuple[float, float, float]:
    """Sizes at which NumPy halves the rate of a square, now, by products with one short side."""
    from tiercel.targets.cpu import measure

    long, short = measure.LONG, measure.SHORT
    m, n, k = (
        short
        * (square / measure.vendor_gflops(dtype, *shape, columns=columns) - 1)
        / from_memory(Problem(*shape, dtype), machine)
        for shape in ((short, long, long), (long, short, long), (long, long, short))
    )
    return _plausible(m), _plausible(n), _plausible(k)


def _plausible(half: float) -> float:
    return min(max(0.0, half), MOST_HALF)


def _on_all_cores(machine: Machine, dtype: str) -> Machine:
    """Speed-up by all cores, of tiercel's product and of NumPy's."""
    from tiercel.targets.cpu import measure

    cores, n = machine.cores, measure.square_for(machine.cores)
    alone, own, vendor = measure.own_gflops(dtype, 1), 0.0, 0.0
    half = machine.rates[dtype].half
    for attempt in range(TRIES):
        if attempt:
            time.sleep(SPIN)
        own = max(own, measure.own_gflops(dtype, cores))
        with _blas_limit(cores):
            vendor = max(vendor, measure.vendor_gflops(dtype, n, n, n))
            half = _halves(machine, dtype, vendor)
        if ALIKE[0] * vendor <= own <= ALIKE[1] * vendor:
            break
    scaling = max(1.0, min(cores, own / alone))
    free = measure.cores_free(dtype, cores)
    if free < IDLE * cores:
        log.info("%.1f of %d cores were idle: measured again in %d s", free, cores, BUSY_PROFILE)
        machine = replace(machine, expires=time.time() + BUSY_PROFILE)
        scaling = max(scaling, TYPICAL * cores)
    packing = max(1.0, min(MOST_PACKING, PACKING * scaling))
    machine = _with(machine, dtype, scaling=scaling, memory_scaling=packing)
    predicted = _predicted_gflops(machine, dtype, cores)
    # A NumPy that stays this slow was disturbed: believing it would lose to the real one.
    half = tuple(map(max, half, machine.rates[dtype].half))  # more cores, no more memory
    reach = from_memory(Problem(n, n, n, dtype), machine)
    share = max(vendor / own, 1 / ALIKE[1]) * (1 + sum(half) / n * reach)
    return _with(machine, dtype, vendor_all_cores=share * predicted, half_all_cores=half)


def _with(machine: Machine, dtype: str, **rates: Any) -> Machine:
    return replace(machine, rates={dtype: replace(machine.rates[dtype], **rates)})


def _predicted_gflops(machine: Machine, dtype: str, threads: int) -> float:
    """What the cost model says of the product that ``measure.own_gflops`` runs."""
    from tiercel.targets.cpu import measure

    n, program = measure.square_for(threads), lower(None)
    target = measure.square_target(n, threads)
    block = blocking(n, n, n, program, machine.tiles[dtype], target)
    problem = Problem(n, n, n, dtype=dtype, threads=threads)
    return 2 * n**3 / kernel_seconds(problem, machine, None, program, block) / 1e9


def _blas_limit(threads: int) -> Any:
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return nullcontext()
    return threadpool_limits(threads, user_api="blas")
