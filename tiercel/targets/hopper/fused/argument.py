"""The fused kernel's argument for one product, and what has to run before the kernel."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from tiercel.targets.hopper.fused import planes, verdict
from tiercel.targets.hopper.fused.ending import Ending
from tiercel.targets.hopper.fused.packed import PackedOperand, fixed_scale
from tiercel.targets.hopper.fused.params import NOBODY, Crew, SchemeParams, nothing
from tiercel.targets.hopper.fused.planes import BlockGrid, Gain
from tiercel.targets.hopper.fused.schedule import TILE, Schedule
from tiercel.targets.hopper.fused.tables import KernelPlane, early_and_late
from tiercel.targets.hopper.fused.verdict import Judge
from tiercel.targets.hopper.fused.workspace import HEADER, Workspace, records
from tiercel.targets.hopper.launching.launch import Launch
from tiercel.targets.hopper.launching.tensor_map import TensorMap
from tiercel.targets.hopper.operands.operand import Matrix
from tiercel.targets.hopper.products import heuristic
from tiercel.targets.hopper.products.launch import operand_boxes

if TYPE_CHECKING:
    import torch


class Combined(NamedTuple):
    """An operand that is combined in this call; ``record`` and ``ready`` (counters) are addresses,
    ``planes`` will be at ``memory``.
    """

    grid: BlockGrid
    planes: tuple[KernelPlane, ...]
    memory: int
    record: int
    ready: int
    gain: Gain
    scale: float
    measured: bool  # for the guard


def argument(
    d: Matrix, b: torch.Tensor, schedule: Schedule, packed: PackedOperand | None,
    memory: Workspace, *, alpha: float, judge: Judge | None, gains: torch.Tensor | None,
    ending: Ending | None, device: int,
) -> tuple[SchemeParams, tuple[Launch, ...]]:  # fmt: skip
    """Of D = alpha · A·B, and the launches that write planes and measure what the kernel does not.

    ``memory``: of the sizes that ``schedule`` asks for; ``b``: what ``packed`` was made of, if it
    was. The other arguments are those of ``product.prepare``.
    """
    how, program, flags = schedule.combining, schedule.lowered.program, memory.flags.data_ptr()
    found = _gains(schedule, flags, gains)
    work = _combined(schedule, memory, found)
    contents, before = [nothing(gain) for gain in found], []
    for i, x in enumerate(work):
        first = early_and_late(x.planes)[0] if schedule.inside else x.planes
        measured = x.measured and not schedule.inside
        made = planes.combination(x.grid, first, x.memory, x.record, x.scale, device, measured)
        before += [] if made is None else [made]
        if schedule.inside:
            rest = x.memory + planes.plane_bytes(x.grid, first)
            contents[i] = planes.arguments(
                x.grid, rest, x.record, x.ready, x.gain, x.scale, heuristic.GROUP
            )
    if judge is not None:
        before += _measurements(schedule, judge, flags, device)
    first, beside = _crews(schedule)
    return SchemeParams(
        _maps(d, schedule, packed, memory, ending), *contents,
        scratch=memory.scratch.data_ptr(), flag=flags,
        block_rows=d.rows // program.m, block_columns=d.columns // program.n,
        tile_columns=schedule.columns, k_tiles=schedule.k_tiles,
        cluster_rows=schedule.rows, cluster_columns=schedule.columns, group=heuristic.GROUP,
        first_turn=how.clusters, first=first, beside=beside, split=how.split, alpha=alpha,
        plane_scale=math.prod(x.scale for x in work) * (1.0 if packed is None else packed.scale),
        verdict=verdict.argument(judge or verdict.ANY, *records(flags), b),
        arrived=flags + 4, paced=flags + 8 if schedule.paced else 0,
        epilogue=b"" if ending is None else ending.params,
        epilogue_addresses=() if ending is None else ending.addresses,
    ), tuple(before)  # fmt: skip


def _gains(schedule: Schedule, flags: int, gains: torch.Tensor | None) -> tuple[Gain, Gain]:
    """Of A and B, where the kernel finds them."""
    first = gains.data_ptr() if gains is not None and schedule.lowered.gained else 0
    used = [record + 4 * verdict.GAIN for record in records(flags)]
    left, right = (Gain(first and first + 4 * i, place) for i, place in enumerate(used))
    return left, right if schedule.dynamic else planes.UNITY


def _combined(
    schedule: Schedule, memory: Workspace, gains: tuple[Gain, Gain]
) -> tuple[Combined, ...]:
    """A, and B if it is not packed."""
    lowered, flags = schedule.lowered, memory.flags.data_ptr()
    ready = flags + 4 * HEADER

    def operand(
        i: int, wanted: tuple[KernelPlane, ...], array: torch.Tensor, ready: int
    ) -> Combined:
        return Combined(
            schedule.grids[i], wanted, array.data_ptr(), records(flags)[i], ready, gains[i],
            fixed_scale(lowered.operand, wanted), schedule.measured[i],
        )  # fmt: skip

    left = operand(0, lowered.a_planes, memory.a_planes, ready)
    if not schedule.dynamic:
        return (left,)
    ready += 4 * schedule.counters[0]
    return left, operand(1, lowered.b_planes, memory.b_planes, ready)


def _maps(
    d: Matrix, schedule: Schedule, packed: PackedOperand | None, memory: Workspace,
    ending: Ending | None,
) -> tuple[TensorMap, ...]:  # fmt: skip
    """Descriptors of the planes of A and B, and of what each block of D is stored to."""
    lowered, (left, right) = schedule.lowered, schedule.grids
    program, (a_box, b_box) = lowered.program, operand_boxes(schedule.config)
    b_planes = memory.b_planes if packed is None else packed.memory
    M, N = d.rows // program.m, d.columns // program.n
    blocks = [d.block(i * M, j * N, M, N) for i in range(program.m) for j in range(program.n)]
    return (
        *planes.tensor_maps(left, lowered.a_planes, memory.a_planes.data_ptr(), a_box),
        *planes.tensor_maps(right, lowered.b_planes, b_planes.data_ptr(), b_box),
        *((x.tensor_map(64) for x in blocks) if ending is None else ending.maps(program)),
    )


def _measurements(schedule: Schedule, judge: Judge, flags: int, device: int) -> list[Launch]:
    """Of the operands that are not measured otherwise."""
    config = schedule.config
    wanted = (True, judge.record is None)
    return [
        verdict.measurement(grid.view, mn_major, record, device)
        for grid, mn_major, record, known, needed in zip(
            schedule.grids, (config.a_mn_major, config.b_mn_major), records(flags),
            schedule.measured, wanted, strict=True,
        )
        if needed and not known
    ]  # fmt: skip


def _crews(schedule: Schedule) -> tuple[Crew, Crew]:
    """Whole clusters, and idle warps, that combine."""
    how, (of_a, of_b) = schedule.combining, schedule.counters

    def crew(warps: int, others: int, mine: int) -> Crew:
        if warps == 0:
            return NOBODY
        # of A and B in proportion to their squares
        left = max(1, min(warps - 1, round(warps * of_a / (of_a + of_b)))) if of_b else warps
        return Crew(warps, left, others, mine)

    whole, idle = how.workers(schedule.blocks, TILE.cluster)
    shared = how.sixteenths if how.where == "both" else 0
    return crew(whole, 0, shared or 16), crew(idle, shared, 16 - shared)
