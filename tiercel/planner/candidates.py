"""What could run: algorithms, and block sizes for each, that fit the budgets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from tiercel.lower.blocking import Blocking, Target, blocking, ceil_div
from tiercel.lower.program import Program, lower
from tiercel.planner.machine import Machine
from tiercel.planner.problem import Problem
from tiercel.schemes import Scheme, get

#: Schemes the planner considers by itself, most accurate first.
CONSIDERED = ("strassen", "strassen2", "strassen3")

#: Ways to run a scheme of several levels: (levels around the five loops, levels inside them). Inside
#: costs memory for packed sums, around costs passes over A, B and C. Others run inside.
SPLITS = {
    "strassen2": ((None, "strassen2"), ("strassen", "strassen")),
    "strassen3": (("strassen", "strassen2"),),
}

#: Most extra memory by default: what the operands take, between these bounds.
LEAST_WORKSPACE, MOST_WORKSPACE = 64 << 20, 384 << 20


def workspace_cap(problem: Problem) -> int:
    """Bytes of extra memory a plan may use."""
    if problem.workspace is not None:
        return problem.workspace
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
    by_row, sums = problem.layout_b == "row", outer is not None
    seen = set()
    for target in _targets(program, machine, tile.size, problem):
        made = blocking(M, N, K, program, tile, target, by_row=by_row, sums=sums)
        key = replace(made, target=_ANY)
        if key not in seen:
            seen.add(key)
            yield made


_ANY = Target(0, 0, 0, 0, 0)
EVERYTHING = 1 << 40


def _targets(
    program: Program, machine: Machine, size: int, problem: Problem
) -> Iterator[Target]:
    """Sub-block sizes: a packed block of A stays in part of L2.

    256 deep: the deepest that keeps two levels' error under 4 × NumPy's (384: 5 ×).
    """
    depth = 256
    rows = max(48, machine.l2 // 4 // (depth * size) // 6 * 6)
    if program.plain:
        rows *= 4  # read once per panel, straight from L3: there is no sum to keep warm
    spans = (EVERYTHING, 4096, 2048, 1024) if problem.storage == problem.compute else (EVERYTHING,)
    many = problem.threads > 1
    for cols in (1024, 512, 256, 128) if not program.plain else (4096, 1024):
        for span in spans:
            for split in (1, 2, 4) if many else (1,):
                for fewer_rows in (1, 2) if many else (1,):
                    yield Target(rows // fewer_rows // 6 * 6, depth, cols, cols // split, span)
