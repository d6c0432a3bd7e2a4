"""Predicted time of a candidate: one page of formulas.

Stages of the classical and the scheme kernels (sizes in elements of the compute dtype, s bytes):

    multiply   R · tiles · (2·mr·nr·k / (peak·kernel) + tile + update·(terms_C/R − 1))
    sums of A  column steps · (terms_A + R) · MK/(mk) · s / sum_a      none for the plain product
    sums of B  (terms_B + R) · KN/(kn) · s / sum_b                     none when B is packed
    stage      (column steps · MK + KN) · s / stage                    KN: none when B is packed
    store      (2·passes − 1) · MN · s / store

Threads share tasks; the slowest thread decides: ⌈tasks / threads⌉ tasks instead of tasks / threads.
"""

from __future__ import annotations

from tiercel.lower.blocking import Blocking, ceil_div
from tiercel.lower.program import Program
from tiercel.planner.machine import Machine, Rates
from tiercel.planner.problem import Problem

#: Seconds in Python and ctypes for one call of a planned product, and for waking the other threads.
CALL = 12e-6
WAKE = 15e-6


def vendor_seconds(problem: Problem, machine: Machine) -> float:
    """NumPy's product: saturating in each dimension, near its peak when all are large."""
    rates = machine.rates[problem.compute]
    share = 1.0
    for size, half in zip((problem.M, problem.N, problem.K), rates.half, strict=True):
        share *= size / (size + half)
    many = problem.threads > 1 and problem.flops > 2e6
    peak = rates.vendor
    if many:
        gain = rates.vendor_all_cores / rates.vendor
        peak *= 1 + (gain - 1) * (problem.threads - 1) / max(1, machine.cores - 1)
    if problem.storage in ("float16", "bfloat16"):
        return problem.flops / 1e9  # NumPy converts or loops: about 1 GFLOP/s
    copies = problem.itemsize * (problem.M * problem.K + problem.K * problem.N)
    extra = copies / 4e9 if "strided" in (problem.layout_a, problem.layout_b) else 0.0
    return 1e-6 + extra + problem.flops / (peak * 1e9 * share)


def kernel_seconds(
    problem: Problem, machine: Machine, program: Program, blocking: Blocking
) -> float:
    """tiercel's own kernel with ``program`` and ``blocking``."""
    rates, tile = machine.rates[problem.compute], machine.tiles[problem.compute]
    M, N, K = problem.M, problem.N, problem.K
    m, k, n, planes = program.m, program.k, program.n, program.planes
    products = len(program.products)
    row_steps, col_steps = ceil_div(M, blocking.mc), ceil_div(N, blocking.nc)
    task_splits = ceil_div(blocking.panels, blocking.task_panels)
    passes = ceil_div(K, blocking.k_span)

    multiply = products * _tile_seconds(problem, program, blocking, rates, tile, passes)
    a_reads = col_steps * task_splits
    sum_a = stage = 0.0
    size, a_size, b_size = tile.size, planes * M * K, planes * K * N
    if not program.plain:
        moved = (program.terms("a") + products) / (planes * m * k)
        sum_a = a_reads * moved * a_size * size / rates.sum_a
    stage = a_reads * a_size * size / rates.stage
    pack = 0.0
    if not problem.static_b:
        pack = b_size * size / rates.stage
        if not program.plain:
            moved = (program.terms("b") + products) / (planes * k * n)
            pack += moved * b_size * size / rates.sum_b
    store = (2 * passes - 1) * planes * M * N * size / rates.store
    seconds = multiply + (sum_a + stage + store) * 1e-9
    seconds += 0 if problem.static_b else pack * 1e-9
    if problem.threads == 1:
        return CALL + seconds
    tasks = row_steps * task_splits
    shares = ceil_div(tasks, problem.threads) / tasks * problem.threads
    speedup = 1 + (rates.scaling - 1) * (problem.threads - 1) / max(1, machine.cores - 1)
    barriers = 2 * passes * col_steps * 2e-6
    return CALL + WAKE + barriers + (multiply + (sum_a + stage + store) * 1e-9) * (
        shares / speedup
    ) + pack * 1e-9 / speedup


def _tile_seconds(
    problem: Problem, program: Program, blocking: Blocking, rates: Rates, tile, passes: int
) -> float:
    """Time of all register tiles of one product over the whole problem."""
    tiles_m = _covered(problem.M, blocking.mc, program.m, tile.mr)
    tiles_n = _covered(problem.N, blocking.nc, program.n, tile.nr)
    span = min(blocking.k_span, problem.K)
    chunks = _covered(span, blocking.kc, program.k, tile.chunk) * passes
    depth_steps = ceil_div(span, blocking.kc) * passes
    flops = 2 * tile.mr * tile.nr * tile.chunk
    dests = program.terms("c") / len(program.products)
    per_tile = rates.tile + rates.update * (dests - 1)
    count = tiles_m * tiles_n
    return count * (chunks * flops / (rates.peak * rates.kernel) + depth_steps * per_tile) * 1e-9


def _covered(extent: int, step: int, parts: int, multiple: int) -> int:
    """Register tiles (or chunks) along one dimension of a sub-block, summed over the steps."""
    whole, rest = divmod(extent, step)
    last = ceil_div(ceil_div(rest, parts), multiple) if rest else 0
    return whole * (step // parts // multiple) + last
