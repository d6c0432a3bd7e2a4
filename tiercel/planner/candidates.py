"""What could run: algorithms, and block sizes for each, that fit the budgets."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from tiercel.lower.blocking import Blocking, Target, blocking
from tiercel.lower.program import Program, lower
from tiercel.planner.machine import Machine
from tiercel.planner.problem import Problem
from tiercel.schemes import Scheme, get

#: Schemes the planner considers by itself, cheapest to execute for their saving.
CONSIDERED = ("strassen", "strassen2")

#: Most extra memory by default: what the operands take, between these bounds.
LEAST_WORKSPACE, MOST_WORKSPACE = 64 << 20, 384 << 20


def workspace_cap(problem: Problem) -> int:
    """Bytes of extra memory a plan may use."""
    if problem.workspace is not None:
        return problem.workspace
    return min(MOST_WORKSPACE, max(LEAST_WORKSPACE, problem.operand_bytes))


@lru_cache(maxsize=64)
def schemes_for(scheme: str | Scheme | None) -> tuple[tuple[str, Scheme | None], ...]:
    """(name, scheme) of the own kernels to consider; None is the classical product."""
    if scheme is None:
        return (("classical", None), *((name, get(name)) for name in CONSIDERED))
    if isinstance(scheme, Scheme):
        return ((scheme.name or "scheme", scheme),)
    return ((scheme, None if scheme == "classical" else get(scheme)),)


def blockings(
    problem: Problem, machine: Machine, program: Program
) -> Iterator[Blocking]:
    """Block sizes worth pricing for one program, from fastest expected to smallest memory."""
    tile = machine.tiles[problem.compute]
    by_row = problem.layout_b == "row"
    seen = set()
    for target in _targets(program, machine, tile.size, problem):
        made = blocking(
            problem.M, problem.N, problem.K, program, tile, target, by_row=by_row
        )
        if made not in seen:
            seen.add(made)
            yield made


def _targets(
    program: Program, machine: Machine, size: int, problem: Problem
) -> Iterator[Target]:
    """Sub-block sizes in bytes of cache: a packed block of A stays in half of L2."""
    half_l2 = machine.l2 // 2 // size
    everything = 1 << 40
    depths = (512, 256) if size == 4 else (256, 128)
    for depth in depths:
        rows = max(48, half_l2 // depth // 6 * 6)
        if program.plain:
            rows *= 2  # read once per panel, straight from L3: no sum to keep warm
        for cols in (4096, 1024, 512, 256, 128):
            for span in (everything, 4096, 2048, 1024):
                for split in (1, 2, 4) if problem.threads > 1 else (1,):
                    for fewer_rows in (1, 2) if problem.threads > 1 else (1,):
                        yield Target(rows // fewer_rows, depth, cols, cols // split, span)


__all__ = ["blockings", "lower", "schemes_for", "workspace_cap"]
