"""The ways in which a GPU could multiply: each priced, or rejected with its reason."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from tiercel.planner import accuracy as classes
from tiercel.planner.gpu import cost, memory, tiles
from tiercel.planner.gpu.accuracy import growth
from tiercel.planner.gpu.machine import GpuMachine
from tiercel.planner.gpu.plan import GpuCandidate
from tiercel.planner.gpu.variants import PLAIN, Variant, considered, fused, named
from tiercel.planner.problem import Problem

#: ``MARGIN`` for leaving the last rows to the vendor's.
DIVIDED = 1.01

#: Least columns for a scheme inside the kernel: what combining A takes is then not hidden.
#: 17920 × 2048 × 7168 was 0.905 times as fast as cuBLAS, 16384 × 3072 × 12288 1.07.
LEAST_COLUMNS = 3072

#: Most columns for a 16-bit scheme that combines B in the call: with 8192 rows and K = 4096 that of
#: Winograd had 1.036 of cuBLAS's speed with so many, 0.989 with 98304, 0.94 with 128256 columns.
MOST_COMBINED = 65536

#: Most of the rows that are left to the vendor so that a scheme's turns are full: a product of its
#: own, with a beginning and an end. With 0.42 of them 9728 × 3072 × 12288 was at 0.965 of cuBLAS
#: instead of 1.03; up to 0.25 predictions hold.
MOST_FRINGE = 1 / 3

#: Rows of a tile of the vendor's batched routine.
PLANE_ROWS = 128

#: Least waves of 128 × 128 tiles for the own 16-bit kernel without an epilogue: with fewer it was
#: 0.53 to 1.03 times as fast as cuBLAS over six products of layers.
LEAST_WAVES = 1.0

#: Shortest part of K that a scheme sums over: the guard judges scales over 128 elements.
SHORTEST_SEGMENT = 128

#: Least side of a plane among the measurements that the cost model was compared with.
SMALLEST_PLANE = {"float32": 128}
USUAL_SMALLEST_PLANE = 512


def candidates(problem: Problem, machine: GpuMachine) -> Iterator[GpuCandidate]:
    """All own variants, rejected ones too; of one algorithm where the problem names it."""
    scheme = problem.scheme
    if machine.plain_of(problem.dtype) is not None and scheme in (None, "classical"):
        yield _plain(problem, machine)
    for name in machine.fused_of(problem.dtype):
        if scheme in (None, name):
            candidate = _fused(problem, machine, name)
            yield candidate
            if scheme is not None and problem.static_b and not candidate.rejected:
                return  # a weight is packed for one kernel, however many rows there are
    if scheme == "classical" or "triton" in machine.notes or problem.dtype == "tfloat32":
        return
    for name in considered(problem.dtype) if scheme is None else (scheme,):
        yield _portable(problem, machine, name)


def _plain(problem: Problem, machine: GpuMachine) -> GpuCandidate:
    reason = _unreachable(problem)
    few = tiles.waves(problem.M, problem.N, machine.multiprocessors, 128, 128) < LEAST_WAVES
    if few and problem.scheme is None and problem.epilogue is None:
        reason = reason or "too few tiles: no gain was measured"
    copied = memory.plain_bytes(problem)
    reason = reason or _too_much(problem, machine, copied)
    seconds = cost.plain_seconds(problem, machine)
    return GpuCandidate("classical", seconds, copied, 1.0, PLAIN, reason)


def _fused(problem: Problem, machine: GpuMachine, name: str) -> GpuCandidate:
    """A scheme inside the kernel, the last rows left to the vendor where that is faster.

    A last turn that leaves multiprocessors idle costs more than the vendor's product of its rows:
    19456 × 7168 × 18432 makes 8.06 turns, 0.97 times as fast as cuBLAS, and 1.09 with 8.
    """
    rows = _rows(problem, machine, name)
    return _best_rows(_fused_rows(problem, machine, name, most) for most in rows)


def _best_rows(ways: Iterator[GpuCandidate]) -> GpuCandidate:
    """The first way, which takes all rows, unless another one is allowed and clearly faster."""
    whole, *divided = ways
    allowed = [way for way in divided if not way.rejected]
    best = min(allowed, key=lambda way: way.seconds, default=whole)
    return best if whole.rejected or best.seconds * DIVIDED < whole.seconds else whole


def _rows(problem: Problem, machine: GpuMachine, name: str) -> Iterator[int]:
    """Rows that the kernel may take: all, or as many as fill its turns."""
    yield problem.M
    (scheme,) = fused(name).schemes
    down, across = memory.FUSED_TILE
    down *= memory.FUSED_CLUSTER * scheme.m
    clusters = machine.multiprocessors // memory.FUSED_CLUSTER
    rows = tiles.full_rows(problem.M, problem.N, clusters, down, across * scheme.n)
    few = 0 < problem.M - rows <= MOST_FRINGE * problem.M
    if few and problem.epilogue is None and not insisted(problem):
        yield rows


def _fused_rows(problem: Problem, machine: GpuMachine, name: str, rows: int) -> GpuCandidate:
    """At most so many rows by the kernel, less those that do not divide."""
    variant = fused(name)
    (scheme,) = variant.schemes
    step = 16 // problem.itemsize  # TMA reads and writes rows of whole 16 bytes
    rows -= rows % (scheme.m * (step if problem.layout_a == "col" else 1))
    fringe, most = problem.M - rows, replace(problem, M=rows)
    error = growth(variant, problem.dtype)
    rejected = _unreachable(problem) or _limits(problem, variant, error)
    if problem.N % (step * scheme.n) or problem.K % (step * scheme.k):
        rejected = rejected or (
            f"N {problem.N} must be a multiple of {step * scheme.n} and K {problem.K} of "
            f"{step * scheme.k}"
        )
    if problem.dtype == "tfloat32" and problem.static_b and problem.layout_b == "row":
        rejected = rejected or "B must be contiguous along K to be packed"
    if problem.scheme is None and problem.N < LEAST_COLUMNS:
        rejected = rejected or f"under {LEAST_COLUMNS} columns no gain was measured"
    both = problem.itemsize == 2 and not problem.static_b
    if problem.scheme is None and both and problem.N > MOST_COMBINED:
        rejected = rejected or f"B has over {MOST_COMBINED} columns to combine in the call"
    if rows == 0:
        return GpuCandidate(name, math.inf, 0, error, variant, "too few rows")
    planes = memory.fused_bytes(most, scheme, machine.multiprocessors)
    rejected = rejected or _too_much(problem, machine, planes)
    seconds = cost.fused_seconds(most, machine, name)
    if fringe:
        seconds += cost.vendor_seconds(replace(problem, M=fringe), machine)
    return GpuCandidate(name, seconds, planes, error, variant, rejected, fringe)


def _portable(problem: Problem, machine: GpuMachine, scheme: object) -> GpuCandidate:
    """A scheme around the vendor's routine, with as many levels at once as the workspace holds."""
    wanted = named(scheme)
    name = scheme if isinstance(scheme, str) else getattr(scheme, "name", "") or "scheme"
    # The fused kernel has the name without suffix, where both could run.
    if name in machine.fused and problem.itemsize == 2:
        name = f"{name} (portable)"
    rows = _rows_of_planes(problem, wanted)
    return _best_rows(_portable_rows(problem, machine, str(name), wanted, most) for most in rows)


def _rows_of_planes(problem: Problem, variant: Variant) -> Iterator[int]:
    """Rows that a scheme may take: all, or whole tiles of its planes where that fills waves better.

    float32, 12800 × 4096 × 8192, three levels: planes of 1600 rows make 12.5 tiles of 128. With
    12288 rows and 512 of cuBLAS's the predicted gain is 1.33 instead of 1.28. Over a sample of 120
    products of layers dividing adds 0.3 % to a mean gain of 20 %.
    """
    yield problem.M
    step = PLANE_ROWS * math.prod(scheme.m for scheme in variant.schemes)
    if problem.static_b and problem.epilogue is None and not insisted(problem):
        whole = problem.M // step
        yield from (step * n for n in range(whole, max(0, whole - 4), -1) if step * n < problem.M)


def _portable_rows(
    problem: Problem, machine: GpuMachine, name: str, wanted: Variant, rows: int
) -> GpuCandidate:
    """So many rows by a scheme around the vendor's routine, the others by that alone."""
    most, error = replace(problem, M=rows), growth(wanted, problem.dtype)
    ways = list(memory.splits(most, wanted))
    if not ways:
        reason = "too many products for one combination kernel"
        return GpuCandidate(name, math.inf, 0, error, wanted, reason)
    cap = memory.workspace_cap(problem, machine.memory)
    sizes = [memory.portable_bytes(most, way) for way in ways]
    fitting = [(way, size) for way, size in zip(ways, sizes, strict=True) if size <= cap]
    way, size = fitting[0] if fitting else (ways[-1], sizes[-1])
    rejected = _limits(problem, wanted, error) or _too_much(problem, machine, size)
    smallest = SMALLEST_PLANE.get(problem.dtype, USUAL_SMALLEST_PLANE)
    if problem.scheme is None and min(memory.plane_sizes(most, way)) < smallest:
        rejected = rejected or f"planes with a side under {smallest} were not measured"
    seconds = cost.portable_seconds(most, machine, way)
    if rows < problem.M:
        seconds += cost.vendor_seconds(replace(problem, M=problem.M - rows), machine)
    return GpuCandidate(name, seconds, size, error, way, rejected, problem.M - rows)


def _limits(problem: Problem, variant: Variant, error: float) -> str:
    """Why the accuracy that was asked for, or the guard, forbids a variant."""
    limit = classes.bound(problem.accuracy)
    if problem.accuracy == "classical":
        return "accuracy is to be classical"
    if error > limit + 1e-9:
        return f"error growth {error:.1f} over the allowed {limit:g}"
    if problem.K // variant.segments < SHORTEST_SEGMENT:
        return f"K {problem.K} is too short to judge the scales of its segments"
    return ""


def _too_much(problem: Problem, machine: GpuMachine, size: int) -> str:
    cap = memory.workspace_cap(problem, machine.memory)
    return "" if size <= cap else f"needs {size / 2**20:.1f} MiB, allowed {cap / 2**20:.1f}"


def _unreachable(problem: Problem) -> str:
    """Why TMA cannot read the operands; "" if it can."""
    strided = [x for x, layout in zip("AB", (problem.layout_a, problem.layout_b), strict=True)
               if layout == "strided"]  # fmt: skip
    if strided:
        return f"{' and '.join(strided)} cannot be read in 16-byte steps"
    if problem.N % 8:
        return f"N {problem.N} must be a multiple of 8"
    return ""


def insisted(problem: Problem) -> bool:
    """Whether a scheme was asked for and must run."""
    return problem.scheme not in (None, "vendor") and problem.must_use
