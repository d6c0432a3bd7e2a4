"""Predicted time of a variant on a GPU: one page of formulas.

    vendor    max(F / (rate · used), bytes / copy) + launch
    plain     own(F) + launch, and its epilogue is free
    fused     R/mkn · own(F) + bytes / combine + out · MN + guard + launches
    portable  sums of A and B / combine + products / (rate · batched · used) + sums of C / finish
              + guard + launches, but no less than the time of Python for the launches

F: operations. rate: the vendor's for a square of as many operations, since power sets the clock.
used: share of the GPU that the tiles keep busy (``tiles.py``), over that of the measured squares.
K counts ``ramp`` more for a tile's start and end.
own(F) = max(F / rate, F / (clock · busy)): our 16-bit kernels run as fast as power allows, but no
faster than the clock, each its own, allows the multiprocessors that have tiles.
Times are those of a call in a stream of calls; what an isolated one waits is ``choose.py``'s.
A level around others repeats everything, and reads a block of C again each time but the first.
guard: one pass over an operand, where its statistics do not come along with the sums.
"""

from __future__ import annotations

from dataclasses import replace

from tiercel.lower.accumulator.combining import IDLE_RATE
from tiercel.planner.gpu.machine import FusedRates, GpuMachine, GpuRates, PlainRates
from tiercel.planner.gpu.memory import (
    BYTES,
    FUSED_CLUSTER,
    FUSED_TILE,
    fused_copies,
    fused_planes,
    plain_bytes,
    plane_sizes,
)
from tiercel.planner.gpu.tiles import busy_alone, share, used, vendors, waves
from tiercel.planner.gpu.variants import Variant, fused
from tiercel.planner.problem import Problem

FUSED_LAUNCHES = 2  # flags and the product
#: Seconds that nothing hides, until the first planes and the verdict are there: with B packed, and
#: without. With 24 µs for both, 17 packed products of 0.3 to 1.1 ms were predicted 2.1 % too slow.
FUSED_START, BOTH_START = 9e-6, 24e-6
HIDING_COLUMNS = 4096
#: Share of the products' time beside which idle warps may combine two operands. Of 8192 × 4096 ×
#: 14336 that takes half of the time, and the product ran at 0.96 of cuBLAS's speed; of 8192³ it
#: takes a third, at 1.08.
HIDING = 0.4
FIXED_LAUNCHES = 3  # the guard's records and its repair
HIDDEN = 0.25  # of a tile's start and end, what shows of them where PingPong hides them
MOST_HIDDEN = 2048  # longest K for which the classical kernel's tiles hide their start and end
TURNING = 0.87  # rate of a copy that transposes over that of one that does not


def vendor_seconds(problem: Problem, machine: GpuMachine) -> float:
    """The vendor's library, and torch's pass for an epilogue."""
    sizes = problem.M, problem.N, 1
    share_used = used(*sizes, machine.multiprocessors, problem.dtype, problem.K)
    rates = _rates(problem, machine)
    ramp = rates.ramp
    if problem.itemsize == 2 and vendors(problem.M, problem.N, machine.multiprocessors)[1]:
        ramp *= HIDDEN
    flops = problem.flops * (1 + ramp / problem.K)
    if problem.crossed:
        share_used *= rates.crossed
    multiply = flops / (_rate(problem, machine) * share_used)
    seconds = max(multiply, _moved(problem, machine)) + machine.launch * 1e-6
    return seconds + epilogue_seconds(problem, machine)


def plain_seconds(problem: Problem, machine: GpuMachine) -> float:
    """The own classical kernel, bias and epilogue inside."""
    share_busy = busy_alone(problem.M, problem.N, machine.multiprocessors)
    rates = _plain(problem, machine)
    shown = rates.shown / problem.K if problem.K > MOST_HIDDEN else 0.0
    multiply = _own(problem, machine, rates, share_busy, shown=shown)
    seconds = max(multiply, _moved(problem, machine)) + machine.launch * 1e-6
    if problem.dtype != "tfloat32":
        return seconds
    # What follows takes a pass of its own.
    if problem.bias or problem.epilogue is not None:
        seconds += _pass(problem, machine)
    return seconds + _turning(plain_bytes(problem), machine)


def _turning(copied: int, machine: GpuMachine) -> float:
    """Copying so many bytes of operands, transposed."""
    return 2 * copied / machine.copy / TURNING / 1e9 + machine.launch * 1e-6 if copied else 0.0


def _own(
    problem: Problem,
    machine: GpuMachine,
    rates: PlainRates | FusedRates,
    share_busy: float,
    depth: int = 1,
    shown: float = 0.0,
) -> float:
    """2·M·N·K operations of our kernel, whose products are K / ``depth`` long.

    ``shown``: of their time, what starting and ending tiles adds to it.
    """
    power = problem.flops * (1 + shown) / (_rate(problem, machine) * rates.multiply)
    ramp = _plain(problem, machine).ramp * depth / problem.K
    return max(power, problem.flops * (1 + ramp) / (rates.clock * 1e12 * share_busy))


def _plain(problem: Problem, machine: GpuMachine) -> PlainRates:
    found = machine.plain_of(problem.dtype)
    assert found is not None, "the machine has the kernel"
    return found


def fused_seconds(problem: Problem, machine: GpuMachine, name: str) -> float:
    """A scheme of one level inside the own kernel, of those that the machine has rates of."""
    (scheme,), rates = fused(name).schemes, machine.fused_of(problem.dtype)[name]
    M, N, K = problem.M, problem.N, problem.K
    down, across = FUSED_TILE
    clusters = machine.multiprocessors // FUSED_CLUSTER
    tiles = share(M // scheme.m, N // scheme.n, 1, clusters, down * FUSED_CLUSTER, across)
    part = scheme.rank / (scheme.m * scheme.k * scheme.n)
    multiply = part * _own(problem, machine, rates, tiles, scheme.k)
    left, right = fused_planes(problem, scheme)
    moved = left + M * K * problem.itemsize
    if not problem.static_b:
        moved += right + K * N * problem.itemsize
    combine, start = rates.combine, FUSED_START
    if not problem.static_b:
        combine, start = min(combine, rates.both), BOTH_START
    # In one turn idle warps do not come up with the sums of A for few columns: 5632 × 3072 × 12288
    # was predicted to gain 5 % and lost 3, while 4608 × 4096 × 8192 gained 5.
    turns = waves(M // scheme.m, N // scheme.n, clusters, down * FUSED_CLUSTER, across)
    if turns <= 1 and N < HIDING_COLUMNS:
        combine = min(combine, machine.copy)
    combining = moved / combine * 1e-9
    if not problem.static_b and problem.itemsize == 2:  # which idle warps combine
        combining = max(combining, moved / IDLE_RATE - HIDING * multiply)
    move = combining + rates.out * M * N * 1e-12
    # Along contiguous rows of K the guard's statistics come along with the planes.
    guarded = 0
    if problem.dtype != "tfloat32":  # whose operands are copied, if need be
        guarded += M * K * (problem.layout_a != "row")
        guarded += K * N * (problem.layout_b != "col" and not problem.static_b)
    guard = guarded * problem.itemsize / machine.check / 1e9
    passes = epilogue_seconds(problem, machine) + _turning(fused_copies(problem), machine)
    if problem.bias:  # added by a pass of its own
        passes += _pass(problem, machine)
    return multiply + move + guard + passes + start + FUSED_LAUNCHES * machine.launch * 1e-6


def portable_seconds(problem: Problem, machine: GpuMachine, variant: Variant) -> float:
    """A scheme around the vendor's batched routine."""
    M, N, K, rates = problem.M, problem.N, problem.K, _rates(problem, machine)
    outer, inner = variant.outer(), variant.inner(problem.is_complex)
    steps, count = len(outer.products), len(inner.products)
    h, w, d = plane_sizes(problem, variant)
    plane, result = BYTES[problem.dtype]
    item = problem.itemsize

    of_a = outer.terms("a") / (outer.m * outer.k) * M * K * item + steps * count * h * d * plane
    of_b = outer.terms("b") / (outer.k * outer.n) * K * N * item + steps * count * d * w * plane
    visits = outer.terms("c") / (outer.m * outer.n)  # of each block of C
    of_c = steps * count * h * w * result + (2 * visits - 1) * M * N * item
    sums = of_a + (0.0 if problem.static_b else of_b)
    guarded = 0
    # The guard's statistics come with the sums, but for segments that several views have along K
    # where K is not contiguous, and for 16 bits, whose scale must be known before.
    if plane == 2 or (variant.around and problem.layout_a != "row"):
        guarded = item * M * K
    if not problem.static_b and (plane == 2 or (variant.around and problem.layout_b != "col")):
        guarded += item * K * N

    side = (h * w * d) ** (1 / 3)
    share_used = used(h, w, count, machine.multiprocessors, problem.dtype)
    rate = _rate(problem, machine) * rates.batched * side / (side + rates.half) * share_used
    multiply = steps * count * 2 * h * w * (d + rates.ramp) / rate

    launches = steps * (3 if problem.static_b else 4) + FIXED_LAUNCHES + (2 if guarded else 0)
    device = (
        (sums / machine.combine + of_c / machine.finish + guarded / machine.check) * 1e-9
        + multiply
        + launches * machine.launch * 1e-6
    )
    python = launches * machine.host * 1e-6
    return max(device, python) + epilogue_seconds(problem, machine)


def epilogue_seconds(problem: Problem, machine: GpuMachine) -> float:
    """torch's element-wise pass over C; a bias goes along with the vendor's product."""
    return 0.0 if problem.epilogue is None else _pass(problem, machine)


def _pass(problem: Problem, machine: GpuMachine) -> float:
    """Reading and writing C once more."""
    return 2 * problem.M * problem.N * problem.itemsize / machine.copy / 1e9


def _moved(problem: Problem, machine: GpuMachine) -> float:
    """Reading A and B and writing C."""
    moved = problem.operand_bytes + problem.itemsize * problem.M * problem.N
    return moved / machine.copy / 1e9


def _rate(problem: Problem, machine: GpuMachine) -> float:
    """Operations per second of the vendor if all multiprocessors were busy from start to end."""
    side = (problem.M * problem.N * problem.K) ** (1 / 3)
    rates = _rates(problem, machine)

    def full(n: int, rate: float) -> float:
        return rate * (1 + rates.ramp / n) / used(n, n, 1, machine.multiprocessors, problem.dtype)

    curve = tuple((n, full(n, rate)) for n, rate in rates.vendor)
    return replace(rates, vendor=curve).at(side) * 1e12


def _rates(problem: Problem, machine: GpuMachine) -> GpuRates:
    return machine.rates[problem.dtype]
