"""Predicted time of a candidate: one page of formulas.

Stages of the own kernels (sizes in elements of the compute dtype, s bytes). An outer program of R'
products runs R' steps of M × N × K sub-problems, whose operands are sums of t_A, t_B views on
average and whose result goes to t_C views; without one, R' = t = 1. Within a step:

    multiply   R · tiles · (2·mr·nr·k / (peak·kernel) + tile + update·(terms_C/R − 1))
    stream     row steps · (R/kn) · KN · s / read / (1 + row tiles/2)   packed B, mostly hidden
    sums of A  column parts · (terms_A + R) · MK/(mk) · s / sum_a      none for the plain product
    sums of B  (terms_B + R) · KN/(kn) · s / sum_b                     none when B is packed
    stage      (column parts · t_A · MK + t_B · KN) · s / stage        KN: none when B is packed
    store      (2 · t_C · passes − first) · MN · s / store             a view touched first: 1 less

Where threads share packed A, it is staged and summed once, not for every part of the columns, by as
many threads as there are row steps.
Staging and storing take longer where neighbours in memory are not neighbours in a register: see the
constants below. NumPy's product is 2MNK / peak and a time for each element of A, B and C, which
``Rates.half`` says in sizes: N / half_N multiplications of an element of A take as long as it.

Threads share tasks; the slowest thread decides: ⌈tasks / threads⌉ tasks instead of tasks / threads.
"""

from __future__ import annotations

from tiercel.lower.blocking import Blocking, Tile, ceil_div
from tiercel.lower.program import Program
from tiercel.planner.candidates import CROWD, DEEPEST
from tiercel.planner.machine import Machine, Rates
from tiercel.planner.problem import Problem

#: Seconds for one call of a planned product, which finds the caches full of other things (warm: a
#: tenth), and for waking the other threads.
CALL = 30e-6
WAKE = 10e-6

#: Time of an element that lies by columns over that of a row-major one, staged or stored; and of an
#: element of A or B that no sums are made of over one that sums are: B is written to memory and
#: read again, unless tasks pack it in turn, from L2. From 220 products of random shapes with 1 to
#: 25 ms on one thread, each computed in up to eight ways, and 127 on two (AVX2, Zen 3).
A_COLUMNS, B_COLUMNS, C_COLUMNS, PLAIN_A, PLAIN_B = 2.0, 1.4, 1.8, 0.8, 1.6

#: Rows of A by columns up to which B by columns costs NumPy no more than by rows: 20 × 4042 × 3477
#: and 24 × 837 × 3665 took 0.83 and 0.89 of the own kernel's time, 58 × 2510 × 3221 takes 1.08.
FEW_ROWS = 32

#: Operands and result that fill this share of L3 come from memory; and what an element of very
#: small ones takes over that. So NumPy's times of 220 products of random shapes, 1 to 25 ms, were
#: predicted within 4 % where all sizes are at least 128 (four of five), within 12 % from 32 on,
#: within 20 % below. Without it products of 10 rows are put 20 % too long.
FULL, CACHED = 0.75, 0.4

#: Packed sums of A that threads share are read again by each part of the columns; one part in so
#: many of the time from memory is seen, multiplications hide the rest.
HIDDEN = 4

#: Threads that share cores are not equally fast: the last one ends so many tasks after the average.
STRAGGLE = 0.25


def from_memory(problem: Problem, machine: Machine) -> float:
    """Time of an element of A, B or C over that of one in memory: less where L3 holds them all."""
    elements = problem.M * problem.K + problem.K * problem.N + problem.M * problem.N
    full = problem.itemsize * elements / (FULL * machine.l3) if machine.l3 else 1.0
    return CACHED + (1 - CACHED) * min(1.0, full)


def vendor_seconds(problem: Problem, machine: Machine) -> float:
    """NumPy's product: near its peak where all sizes are large."""
    rates = machine.rates[problem.compute]
    crowd = (problem.threads - 1) / max(1, machine.cores - 1)  # 0: one thread, 1: all cores
    half_m, half_n, half_k = (
        one + (every - one) * crowd
        for one, every in zip(rates.half, rates.half_all_cores, strict=True)
    )
    few = problem.M <= FEW_ROWS and problem.layout_a != "row"
    if problem.layout_b != "row" and not few:
        half_m = max(half_m, rates.half_columns[0])
    if problem.layout_a != "row":
        half_n = max(half_n, rates.half_columns[1])
    reach = from_memory(problem, machine)
    effort = 1 + reach * (half_m / problem.M + half_n / problem.N + half_k / problem.K)
    many = problem.threads > 1 and problem.flops > 2e6
    peak = rates.vendor
    if many:
        gain = rates.vendor_all_cores / rates.vendor
        peak *= 1 + (gain - 1) * crowd
    if problem.storage in ("float16", "bfloat16"):
        return problem.flops / 1e9  # NumPy converts or loops: about 1 GFLOP/s
    copies = problem.itemsize * (problem.M * problem.K + problem.K * problem.N)
    extra = copies / 4e9 if "strided" in (problem.layout_a, problem.layout_b) else 0.0
    return 1e-6 + extra + problem.flops * effort / (peak * 1e9)


def kernel_seconds(
    problem: Problem,
    machine: Machine,
    outer: Program | None,
    program: Program,
    blocking: Blocking,
) -> float:
    """tiercel's own kernel: ``program`` inside the five loops, ``outer`` around them."""
    rates, tile = machine.rates[problem.compute], machine.tiles[problem.compute]
    M, N, K = problem.M, problem.N, problem.K
    t_a = t_b = t_c = repeats = 1.0
    first = 1.0
    if outer is not None:
        M, N, K = ceil_div(M, outer.m), ceil_div(N, outer.n), ceil_div(K, outer.k)
        repeats = len(outer.products)
        t_a, t_b, t_c = (outer.terms(operand) / repeats for operand in "abc")
        first = outer.m * outer.n / repeats
    m, k, n, planes = program.m, program.k, program.n, program.planes
    products, size = len(program.products), tile.size
    row_steps, col_steps = ceil_div(M, blocking.mc), ceil_div(N, blocking.nc)
    task_splits = ceil_div(blocking.panels, blocking.task_panels)
    passes = ceil_div(K, blocking.k_span)
    parts = col_steps * task_splits
    a_bytes, b_bytes, c_bytes = (planes * x * size for x in (M * K, K * N, M * N))

    crowd = problem.threads >= CROWD
    shallow = 1.0 if crowd else blocking.target.depth / DEEPEST
    multiply = products * _tile_seconds(M, N, K, program, blocking, rates, tile, passes, shallow)
    row_tiles = blocking.mc // m // tile.mr
    stream = row_steps * products / (k * n) * b_bytes / rates.read / (1 + row_tiles / 2)
    if blocking.packed_a:
        stream += parts * products / (m * k) * a_bytes / rates.read / HIDDEN
    slow_a = A_COLUMNS if problem.layout_a != "row" else 1.0
    slow_c = C_COLUMNS if problem.layout_c != "row" else 1.0
    pack_a = t_a * a_bytes * slow_a / rates.stage
    move = stream
    move += (2 * t_c * passes - first) * c_bytes * slow_c / rates.store
    slow_b = B_COLUMNS if problem.layout_b != "row" else 1.0
    pack = t_b * b_bytes * slow_b / rates.stage
    if program.plain and outer is None:
        pack_a *= PLAIN_A
        pack *= PLAIN_B * from_memory(problem, machine)
    else:
        moved = (program.terms("a") + products) / (planes * m * k) + 3 * (t_a - 1)
        pack_a += moved * a_bytes / rates.sum_a
        moved = (program.terms("b") + products) / (planes * k * n) + 3 * (t_b - 1)
        pack += moved * b_bytes / rates.sum_b
    if blocking.target.in_turn:
        in_turn = b_bytes * slow_b / rates.stage * from_memory(problem, machine)
        move += max(0.0, in_turn - stream)
        pack = 0.0
    if problem.static_b:
        pack = 0.0
    if problem.threads == 1:
        return CALL + repeats * (multiply + move + parts * pack_a + pack) * 1e-9
    uneven = _uneven(row_steps * task_splits, problem.threads)
    if blocking.packed_a:
        pack += pack_a * _uneven(row_steps, problem.threads)
    else:
        move += parts * pack_a
    compute = _speedup(rates.scaling, problem, machine)
    memory = _speedup(rates.memory_scaling, problem, machine)
    barriers = 2 * passes * col_steps * 2e-6
    step = barriers + ((multiply / compute + move / memory) * uneven + pack / memory) * 1e-9
    return CALL + WAKE + repeats * step


def _uneven(tasks: int, threads: int) -> float:
    """How much longer the slowest of the threads takes than an equal share."""
    slowest = float(ceil_div(tasks, threads))
    if threads >= CROWD:
        slowest = max(slowest, tasks / threads + STRAGGLE)
    return slowest / tasks * threads


def _speedup(all_cores: float, problem: Problem, machine: Machine) -> float:
    """Speed-up of the problem's threads, from that of all cores."""
    return 1 + (all_cores - 1) * (problem.threads - 1) / max(1, machine.cores - 1)


def _tile_seconds(
    M: int,
    N: int,
    K: int,
    program: Program,
    blocking: Blocking,
    rates: Rates,
    tile: Tile,
    passes: int,
    shallow: float,
) -> float:
    """Nanoseconds of all register tiles of one product over a whole step.

    ``shallow``: depth of a sub-block over the usual one. Where L1 holds half the depth only, a tile
    costs half as much beside its multiplications, too.
    """
    tiles_m = _covered(M, blocking.mc, program.m, tile.mr)
    tiles_n = _covered(N, blocking.nc, program.n, tile.nr)
    span = min(blocking.k_span, K)
    chunks = _covered(span, blocking.kc, program.k, tile.chunk) * passes
    depth_steps = ceil_div(span, blocking.kc) * passes
    flops = 2 * tile.mr * tile.nr * tile.chunk
    dests = program.terms("c") / len(program.products)
    per_tile = shallow * (rates.tile + rates.update * (dests - 1))
    count = tiles_m * tiles_n
    return count * (chunks * flops / (rates.peak * rates.kernel) + depth_steps * per_tile)


def _covered(extent: int, step: int, parts: int, multiple: int) -> int:
    """Register tiles (or chunks) along one dimension of a sub-block, summed over the steps."""
    whole, rest = divmod(extent, step)
    last = ceil_div(ceil_div(rest, parts), multiple) if rest else 0
    return whole * (step // parts // multiple) + last
