"""What could run: algorithms, and block sizes for each, that fit the budgets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from tiercel.lower.blocking import Blocking, Target, Tile, blocking, ceil_div
from tiercel.lower.program import Program, lower
from tiercel.planner.machine import Machine
from tiercel.planner.problem import Problem
from tiercel.schemes import Scheme, get

#: Schemes the planner considers by itself, most accurate first.
CONSIDERED = ("strassen", "strassen2", "strassen3")

#: Ways to run a scheme of several levels: (levels around the five loops, levels inside them).
#: Inside costs memory for packed sums, around costs passes over A, B and C. Others run inside.
SPLITS = {
    "strassen2": ((None, "strassen2"), ("strassen", "strassen")),
    "strassen3": (("strassen", "strassen2"),),
}

#: Most extra memory by default: what the operands take, between these bounds. 208 MiB hold a 4096 ×
#: 4096 float32 B summed for two levels: 1024 rows are then 1.16 × NumPy instead of 1.13 ×.
LEAST_WORKSPACE, MOST_WORKSPACE = 208 << 20, 384 << 20

#: A packed operand takes at most this many times the bytes of the plain one (three levels: 5.4).
PACKED_GROWTH = 6


def workspace_cap(problem: Problem) -> int:
    """Bytes of extra memory a plan may use."""
    if problem.workspace is not None:
        return problem.workspace
    if problem.static_b:  # packed on request, its size is stated and stays
        return PACKED_GROWTH * problem.itemsize * problem.K * problem.N + MOST_WORKSPACE
    return min(MOST_WORKSPACE, max(LEAST_WORKSPACE, problem.operand_bytes))


@dataclass(frozen=True)
class Algorithm:
    """A named algorithm, its scheme (None: classical) and the ways to run it (outer, inner)."""

    name: str
    scheme: Scheme | None
    ways: tuple[tuple[Program | None, Program], ...]


@lru_cache(maxsize=64)
def algorithms(scheme: str | Scheme | None, is_complex: bool) -> tuple[Algorithm, ...]:
    """The own kernels to consider: all, or the one that was asked for."""
    if scheme is None:
        names: tuple[str | Scheme, ...] = ("classical", *CONSIDERED)
    else:
        names = (scheme,)
    return tuple(_algorithm(name, is_complex) for name in names)


def _algorithm(scheme: str | Scheme, is_complex: bool) -> Algorithm:
    if isinstance(scheme, Scheme):
        return Algorithm(scheme.name or "scheme", scheme, ((None, _inner(scheme, is_complex)),))
    if scheme == "classical":
        return Algorithm(scheme, None, ((None, _inner(None, is_complex)),))
    ways = tuple(
        (outer and lower(get(outer)), _inner(get(inner), is_complex))
        for outer, inner in SPLITS.get(scheme, ((None, scheme),))
    )
    return Algorithm(scheme, get(scheme), ways)


def _inner(scheme: Scheme | None, is_complex: bool) -> Program:
    return lower(scheme, is_complex=is_complex)


def blockings(
    problem: Problem, machine: Machine, outer: Program | None, program: Program
) -> Iterator[Blocking]:
    """Block sizes worth pricing for one way to run an algorithm."""
    tile = machine.tiles[problem.compute]
    M, N, K = problem.M, problem.N, problem.K
    if outer is not None:
        M, N, K = ceil_div(M, outer.m), ceil_div(N, outer.n), ceil_div(K, outer.k)
    by_row, views = problem.layout_b == "row", outer.widest("b") if outer else 0
    cap = workspace_cap(problem)
    many, crowd = problem.threads > 1, problem.threads >= CROWD
    divisions = (1, 2, 3, 4, 8) if crowd else (1, 2) if many else (1,)
    # A third of 1024 columns is half of 688: sub-blocks that two threads would else share as one
    # task or three. 672 × 2704 × 2704 by two levels takes 0.78 of the time, 704 × 2600 × 4096 0.91.
    splits = sorted({*divisions, 3, 4}) if many else divisions
    depth = _depth(program, machine, tile, crowd)
    rows = _rows(program, machine, tile, depth)
    # A pass over part of K only where a pass over all of it needs too much memory. Half types
    # cannot be added up in C: one pass.
    spans = SPANS if problem.storage == problem.compute else SPANS[:1]
    most = machine.l2 * CROWDED if crowd else EVERYTHING
    few = M * depth * tile.size <= machine.l2 * MOST_IN_TURN
    if few and program.plain and not (outer or problem.static_b or crowd):
        yield _in_turn(problem, tile, program, depth)
        return
    seen, too_large = set(), []
    for share_a in (False, True) if crowd else (False,):
        for cols in PLAIN_COLUMNS if program.plain else COLUMNS if not crowd else CROWD_COLUMNS:
            for span in spans:
                needed = 0
                if share_a:
                    wide = max(1, round(cols / SHARED_COLUMNS[tile.size]))
                    splits = SHARED_SPLITS if program.plain else (wide,)
                for fewer, split in product(divisions, splits):
                    target = Target(rows // fewer, depth, cols, cols // split, span, share_a)
                    made = blocking(M, N, K, program, tile, target, by_row=by_row, views=views)
                    needed = made.packed + made.packed_a
                    key = (made.mc, made.nc, made.kc, made.k_span, made.task_panels, share_a)
                    if key in seen:
                        continue
                    seen.add(key)
                    scratch = program.planes * program.m * program.n * made.c_block
                    if scratch <= most:
                        yield made
                    else:
                        too_large.append((scratch, len(too_large), made))
                if needed < cap // 2:
                    break
    if len(too_large) == len(seen):  # a scheme of very many blocks
        yield min(too_large)[-1]


def _in_turn(problem: Problem, tile: Tile, program: Program, depth: int) -> Blocking:
    """B packed by the tasks, some panels just before use: where all rows are one sub-block."""
    M, N, K = problem.M, problem.N, problem.K
    tasks = ceil_div(N, COLUMNS_IN_TURN * problem.threads) * problem.threads
    cols = ceil_div(N, tasks)
    target = Target(M, depth, EVERYTHING, cols, EVERYTHING, in_turn=True)
    return blocking(M, N, K, program, tile, target, by_row=problem.layout_b == "row")


#: Share of L2 that A may take where all its rows use a packed panel, which is then used once (384
#: rows where L2 has 512 KB), and columns that a task computes. 175 × 1304 × 1608: 1.07 × the speed
#: of NumPy with 1024 columns, 1.03 with 512, 1.02 packed beforehand; 331 × 795 × 1574: 1.03 and
#: 1.03; 499 × 105 × 3110, two sub-blocks: 0.99 and 0.99.
MOST_IN_TURN, COLUMNS_IN_TURN = 0.75, 1024

#: From so many threads on, two may live on a core and have half of its caches each: a panel of B
#: then takes a third of L1 (16 threads, float64, 4096³: depth 128 has 1.07 × the speed of 256), and
#: a task's scratch at most this share of L2 (532 KB 1.09 to 1.12 × the speed of 1064).
CROWD, CROWDED = 5, 1 / 3

#: Tasks that a sub-block's columns are cut into where many threads share packed A: there a task of
#: few columns costs little, and its scratch stays in L2. A scheme's tasks have so many columns, by
#: bytes of an element: 16 threads, 8192³ by two levels, beside MKL: float32 1.07 with 192 and 1.00
#: with 256, float64 0.93 with 128.
SHARED_SPLITS, SHARED_COLUMNS = (2, 4, 8, 16), {4: 192, 8: 128}

#: Columns of a sub-block without sums: 2048 where 4096 needs too much memory.
PLAIN_COLUMNS = (4096, 2048, 1024)

#: Columns of a sub-block of a scheme. Many threads wait for the last one after each group of
#: columns: 16 of them, two levels at 8192³ in float32, reach 1.07 × MKL's speed with 2048, 0.96
#: with 1024.
COLUMNS = (1024, 512, 256, 128)
CROWD_COLUMNS = (2048, *COLUMNS)

EVERYTHING = 1 << 40
SPANS = (EVERYTHING, 4096, 2048, 1024)

#: Deepest sub-block: it keeps two levels' error under 4 × NumPy's (384: 5 ×).
DEEPEST = 256

#: Share of L1 that a tile of A may take in a scheme, so that beside it and the panel of B there is
#: room for the tiles of C that are updated: 6 rows of float64 are 128 deep. Zen 4, one thread, over
#: NumPy: 4096³ 1.29, with 256 1.24; 2048³ 1.17 and 1.13. 176 is as fast as 128; without sums 128 is
#: as fast as 256.
TILE_OF_A = 3 / 16


def _depth(program: Program, machine: Machine, tile: Tile, crowd: bool) -> int:
    """Depth of a sub-block: a panel of B takes half of L1, a third in a crowd.

    Plain float32, on one thread beside NumPy: 256 deep and 172 rows 1.027 × its speed at 1024³ and
    1.025 at 2048³, 344 and 126 1.014 and 1.014, 512 and 126 1.010 at 1024³.
    """
    room = machine.l1 // (3 if crowd else 2) // (tile.nr * tile.size)
    if not (program.plain or crowd):
        room = min(room, int(machine.l1 * TILE_OF_A) // (tile.mr * tile.size))
    return min(DEEPEST, max(tile.chunk, room // tile.chunk * tile.chunk))


def _rows(program: Program, machine: Machine, tile: Tile, depth: int) -> int:
    """Rows of a sub-block: a packed block of A takes a quarter of L2, a bit more without sums."""
    rows = machine.l2 // 4 // (depth * tile.size)
    return max(48, rows * 4 // 3 if program.plain else rows)
