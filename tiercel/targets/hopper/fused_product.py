"""A product by a scheme, inside one kernel: planes, gate, fallback."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.lower.accumulator import AccumulatorProgram
from tiercel.lower.accumulator.combining import Amount, Combining, Where, choose
from tiercel.targets.hopper import (
    fused,
    fused_source,
    heuristic,
    planes,
    verdict,
)
from tiercel.targets.hopper.compile import cubin
from tiercel.targets.hopper.config import ITEM_BYTES, SLOT_BYTES, Config, Tile
from tiercel.targets.hopper.driver import (
    Arguments,
    Kernel,
    TensorMap,
    clear_words,
    multiprocessors,
)
from tiercel.targets.hopper.epilogue import EpilogueText
from tiercel.targets.hopper.fused import Fused
from tiercel.targets.hopper.fused_params import NOBODY, NOTHING, Crew, SchemeParams
from tiercel.targets.hopper.launch import Launch
from tiercel.targets.hopper.operand import Matrix, of_tensor, oriented
from tiercel.targets.hopper.packed import PackedOperand, fixed_scale, left_grid, right_grid
from tiercel.targets.hopper.product import launch_of, operand_boxes
from tiercel.targets.hopper.verdict import Judge

if TYPE_CHECKING:
    import torch

TILE = Tile(128, 256, 4, "cooperative", cluster_m=2)
# Words before the counters: flag, records of A and B, consumers that are done.
HEADER = 1 + 2 * verdict.RECORD_WORDS + 1
LEAST_K_TILES = 8  # of a product, beside stores and loads: ``kernels/scheme.cuh``
PART_K_TILES = 12  # of one of several parts


class Workspace(NamedTuple):
    """Memory of one call: planes of A, of B if it is not packed, saved sums, and counters, zero at
    first.
    """

    a_planes: torch.Tensor
    b_planes: torch.Tensor
    scratch: torch.Tensor
    flags: torch.Tensor


@dataclass(frozen=True)
class FusedLaunch:
    """All launches of one product, in order, ready to repeat."""

    before: tuple[Launch, ...]  # planes, and the guard where they come first
    multiply: Launch
    after: tuple[Launch, ...]  # the guard where planes are combined meanwhile; the fallback
    workspace: Workspace
    kept: tuple[torch.Tensor, ...]  # what else the launches point to

    def run(self, stream: int) -> None:
        """Enqueue: planes, the scheme if they are fine, the classical product if not."""
        flags = self.workspace.flags
        clear_words(flags.data_ptr(), flags.numel(), stream)
        self.run_cleared(stream)

    def addresses_only(self) -> FusedLaunch:
        """The same launches; they do not keep alive what they point to."""
        nothing = Workspace(*(x.new_empty(0) for x in self.workspace))
        return replace(self, workspace=nothing, kept=())

    def run_cleared(self, stream: int) -> None:
        """The same where the workspace's flags are zero already."""
        for launch in (*self.before, self.multiply, *self.after):
            launch.run(stream)


@dataclass(frozen=True)
class _Shape:
    """What sizes and layouts alone decide."""

    lowered: Fused
    config: Config
    blocks: int
    grids: tuple[planes.BlockGrid, planes.BlockGrid]  # of A and of B
    combining: Combining
    rows: int  # of cluster tiles
    columns: int
    k_tiles: int
    dynamic: bool  # B is combined in each call, too
    slots: int  # saved sums that a tile has room for

    @property
    def inside(self) -> bool:
        return self.combining.where != "before"

    @property
    def counters(self) -> tuple[int, int]:
        """Words that count what of A and of B is combined: workers done, then squares."""
        if not self.inside:
            return 0, 0
        left, right = (1 + math.prod(planes.squares(grid)) for grid in self.grids)
        return left, right if self.dynamic else 0


@dataclass(frozen=True, eq=False)
class Ending:
    """What follows the product inside the kernel: an epilogue, see ``fused_epilogue.py``.

    ``d``: stands for the product's own matrix, of the outputs' dtype. ``maps``: of the output's
    blocks, given the grid of a scheme. ``params``: the epilogue's argument, with addresses at the
    offsets ``addresses``. ``kept``: what these point to.
    """

    text: EpilogueText
    d: Matrix
    maps: Callable[[AccumulatorProgram], Iterable[TensorMap]]
    params: bytes
    addresses: tuple[int, ...]
    kept: tuple[torch.Tensor, ...]


def prepare(
    a: torch.Tensor,
    b: PackedOperand | torch.Tensor,
    out: torch.Tensor | Ending,
    *,
    program: AccumulatorProgram | None = None,
    alpha: float = 1.0,
    judge: Judge | None = None,
    combining: Combining | None = None,
    memory: Workspace | None = None,
    single: bool = False,
) -> FusedLaunch:
    """Workspace and launches of out = alpha · A·B, ``a`` (M, K) of the packed operand's dtype.

    ``b`` (K, N) that is not packed is combined in each call, too, by ``program``. Nothing waits for
    the device: planes that overflowed or are not finite are noticed there, and the classical
    kernel, launched last, then replaces the result. ``out`` may be an ``Ending`` instead, which
    makes of the product what it likes, and needs ``single``. ``judge``: what else the data must
    fulfil.
    ``combining``: by default ``choose`` decides. ``memory``: of the sizes that an earlier
    call with operands of the same sizes and strides used. ``single``: the kernel itself judges, and
    multiplies classically what it must not multiply by the scheme; no other kernel does. With an
    ``Ending``, none combines planes by default.

    Raises :class:`TiercelValueError` where the sizes do not divide into the scheme's blocks.
    """
    tensor, packed = (b.b, b) if isinstance(b, PackedOperand) else (b, None)
    program = program if packed is None else packed.lowered.program
    if program is None:
        raise TiercelValueError("b is not packed, and program is missing; give the program to run")
    left, right = of_tensor(a, "a"), of_tensor(tensor, "b")
    ending = out if isinstance(out, Ending) else None
    d = out.d if isinstance(out, Ending) else of_tensor(out, "out")
    _check(left, right, d, program, packed)
    device = a.get_device()
    judged = judge is not None
    shape = _shape(
        left, right, d, program, packed is None, combining, judged, single, device,
        alone=ending is not None,
    )  # fmt: skip
    if ending is not None:
        shape = replace(shape, slots=fused_source.slots(shape.lowered, postpones=True))
    if single:
        shape = replace(shape, lowered=fused.with_classical(shape.lowered))
    if memory is None:
        memory = _workspace(a, shape)
    flag = memory.flags.data_ptr()
    params, before = _argument(left, d, shape, packed, memory, alpha, judged, device, ending)
    guard: list[Launch] = []
    if judge is not None:
        guard = _measurements(shape, judge, flag, device)
        left_record, right_record = _records(flag)
        if judge.record is not None:
            right_record = judge.record.data_ptr()
        judging = judge, flag, left_record, right_record, tensor
        if single:
            params = replace(params, verdict=verdict.argument(*judging))
        else:
            guard.append(verdict.verdict(*judging, device))
    after: list[Launch] = []
    if not single:
        after.append(launch_of(left, right, d, None, alpha, 0.0, device, gate=(flag, 1)))
    if single or not shape.inside:
        before = (*before, *guard)
    else:
        after = [*guard, *after]
    text = None if ending is None else ending.text
    made = kernel(shape.config, shape.lowered, shape.combining.where, device, text)
    outputs = out.kept if isinstance(out, Ending) else (out,)
    return FusedLaunch(
        before,
        Launch(made, shape.blocks, Arguments(params.pack()), places=params.places),
        tuple(after),
        memory,
        (a, tensor, *outputs) if packed is None else (a, tensor, packed.memory, *outputs),
    )


def _records(flag: int) -> tuple[int, int]:
    return flag + 4, flag + 4 + 4 * verdict.RECORD_WORDS


def _recorded(shape: _Shape) -> tuple[bool, bool]:
    """Whether combining A, and B, leaves the guard's record behind.

    It does along contiguous K, and by a kernel of its own only where its warps hold whole segments.
    """
    of_a, of_b = (
        not mn_major and bool(fused.sums_of(wanted))
        and (shape.inside or grid.columns % 256 == 0)
        for mn_major, wanted, grid in zip(
            (shape.config.a_mn_major, shape.config.b_mn_major),
            (shape.lowered.a_planes, shape.lowered.b_planes), shape.grids, strict=True,
        )
    )  # fmt: skip
    return of_a, of_b and shape.dynamic


def _measurements(shape: _Shape, judge: Judge, flag: int, device: int) -> list[Launch]:
    config = shape.config
    wanted = (True, judge.record is None)
    return [
        verdict.measurement(grid.view, mn_major, record, device)
        for grid, mn_major, record, known, needed in zip(
            shape.grids, (config.a_mn_major, config.b_mn_major), _records(flag),
            _recorded(shape), wanted, strict=True,
        )
        if needed and not known
    ]  # fmt: skip


def _shape(
    a: Matrix, b: Matrix, d: Matrix, program: AccumulatorProgram, dynamic: bool,
    combining: Combining | None, judged: bool, single: bool, device: int, alone: bool = True,
) -> _Shape:  # fmt: skip
    """``alone``: by default no other kernel combines planes where this one judges."""
    M, N = d.rows // program.m, d.columns // program.n
    rows, columns = -(-M // (TILE.m * TILE.cluster_m)), -(-N // (TILE.n * TILE.cluster_n))
    clusters = multiprocessors(device) // TILE.cluster
    item = ITEM_BYTES[a.dtype]
    k_tiles = max(LEAST_K_TILES, -(-a.columns // program.k * item // 128))  # zeros beyond the end
    parts = max(1, min(fused.MOST_PARTS, k_tiles // PART_K_TILES))
    grids = left_grid(a, program), right_grid(b, program)
    if combining is None:
        lowered = fused.lower(program, a.dtype)
        of_a = planes.plane_bytes(grids[0], lowered.a_planes) + a.rows * a.columns * item
        of_b = planes.plane_bytes(grids[1], lowered.b_planes) + b.rows * b.columns * item
        all_k_tiles = k_tiles * program.multiplies
        amount = Amount.of(rows, columns, clusters, all_k_tiles, of_a, of_b if dynamic else 0)
        combining = choose(amount, program, judged=judged and not (single and alone), single=single)
        if single and alone and combining.where == "before":
            combining = Combining("beside")
        if item == 1 or (combining.where == "beside" and a.dtype != "bfloat16"):
            combining = Combining()  # idle warps take longer for other types, or were not measured
    inside = combining.where != "before"
    early = combining.early if inside else 0
    lowered = fused.lower(
        program, a.dtype, inside, inside and dynamic, parts, early, inside and judged
    )
    config = Config(TILE, a.dtype, d.dtype, oriented(a, "a")[1], oriented(b.transposed, "b")[1])
    used = min(clusters, rows * columns + combining.clusters)
    return _Shape(
        lowered, config, used * TILE.cluster, grids,
        combining, rows, columns, k_tiles, dynamic, lowered.slots,
    )  # fmt: skip


def _workspace(a: torch.Tensor, shape: _Shape) -> Workspace:
    import torch

    lowered, (left, right) = shape.lowered, shape.grids
    tiles = shape.blocks * max(1, shape.combining.split)  # that are begun and not finished

    def halves(count: int) -> torch.Tensor:
        return a.new_empty(count, dtype=torch.float16)

    b_planes = planes.plane_bytes(right, lowered.b_planes) // 2 if shape.dynamic else 0
    return Workspace(
        halves(planes.plane_bytes(left, lowered.a_planes) // 2),
        halves(b_planes),
        halves(tiles * shape.slots * SLOT_BYTES // 2),
        a.new_zeros(HEADER + sum(shape.counters), dtype=torch.int32),
    )


def _argument(
    a: Matrix, d: Matrix, shape: _Shape, packed: PackedOperand | None, memory: Workspace,
    alpha: float, judged: bool, device: int, ending: Ending | None,
) -> tuple[SchemeParams, tuple[Launch, ...]]:  # fmt: skip
    """The fused kernel's argument, and the launches before it."""
    lowered, (left, right), how = shape.lowered, shape.grids, shape.combining
    program, flag = lowered.program, memory.flags.data_ptr()
    a_planes = memory.a_planes.data_ptr()
    b_planes = (memory.b_planes if packed is None else packed.memory).data_ptr()
    a_box, b_box = operand_boxes(shape.config)
    M, N = d.rows // program.m, d.columns // program.n
    blocks = [d.block(i * M, j * N, M, N) for i in range(program.m) for j in range(program.n)]
    maps = (
        *(
            x.tensor_map(a_box, operand=True)
            for x in planes.matrices(left, lowered.a_planes, a_planes)
        ),
        *(
            x.tensor_map(b_box, operand=True)
            for x in planes.matrices(right, lowered.b_planes, b_planes)
        ),
        *((x.tensor_map(64) for x in blocks) if ending is None else ending.maps(program)),
    )
    records = [
        record if judged and recorded else 0
        for record, recorded in zip(_records(flag), _recorded(shape), strict=True)
    ]
    first, beside = _crews(shape)
    contents, before = [NOTHING, NOTHING], []
    work = [(left, lowered.a_planes, a_planes)]
    if shape.dynamic:
        work.append((right, lowered.b_planes, b_planes))
    scales = [fixed_scale(lowered.operand, wanted) for _, wanted, _ in work]
    if shape.inside:
        ready, group = flag + 4 * HEADER, heuristic.GROUP
        for i, (grid, wanted, address) in enumerate(work):
            early = fused.early_and_late(wanted)[0]
            made = planes.combination(grid, early, address, flag, scales[i], device)
            before += [] if made is None else [made]
            rest = address + planes.plane_bytes(grid, early)
            contents[i] = planes.arguments(grid, rest, flag, ready, scales[i], group, records[i])
            ready += 4 * shape.counters[i]
    else:
        made = [
            planes.combination(*x, flag, scale, device, record)
            for x, scale, record in zip(work, scales, records, strict=False)
        ]
        before = [x for x in made if x is not None]
    return SchemeParams(
        maps, *contents, scratch=memory.scratch.data_ptr(), flag=flag,
        gate=0 if shape.inside or lowered.repeats else flag, gate_value=0,
        block_rows=M, block_columns=N, tile_columns=shape.columns, k_tiles=shape.k_tiles,
        cluster_rows=shape.rows, cluster_columns=shape.columns, group=heuristic.GROUP,
        first_turn=how.clusters, first=first, beside=beside, split=how.split, alpha=alpha,
        plane_scale=math.prod(scales) * (1.0 if packed is None else packed.scale),
        arrived=flag + 4 * (HEADER - 1), epilogue=b"" if ending is None else ending.params,
        epilogue_addresses=() if ending is None else ending.addresses,
    ), tuple(before)  # fmt: skip


def _crews(shape: _Shape) -> tuple[Crew, Crew]:
    """Whole clusters, and idle warps, that combine."""
    how, (of_a, of_b) = shape.combining, shape.counters

    def crew(warps: int, others: int, mine: int) -> Crew:
        if warps == 0:
            return NOBODY
        # of A and B in proportion to their squares
        left = max(1, min(warps - 1, round(warps * of_a / (of_a + of_b)))) if of_b else warps
        return Crew(warps, left, others, mine)

    whole, idle = how.workers(shape.blocks, TILE.cluster)
    shared = how.sixteenths if how.where == "both" else 0
    return crew(whole, 0, shared or 16), crew(idle, shared, 16 - shared)


def _check(
    a: Matrix, b: Matrix, d: Matrix, program: AccumulatorProgram, packed: PackedOperand | None
) -> None:
    operand = b.dtype if packed is None else packed.lowered.operand
    if a.dtype != operand or operand not in fused.PLANES:
        raise TiercelTypeError(
            f"a is {a.dtype} and b {operand}; the fused kernel takes both as "
            f"{' or both as '.join(fused.PLANES)}"
        )
    if ITEM_BYTES[operand] != 2 and (oriented(a, "a")[1] or oriented(b.transposed, "b")[1]):
        raise TiercelValueError(
            f"a or b is {operand} and not contiguous along K, as its planes must be. Copy it, or "
            "use the classical kernel"
        )
    if a.columns != b.rows or (d.rows, d.columns) != (a.rows, b.columns):
        raise TiercelValueError(
            f"a is {a.rows}x{a.columns}, b {b.rows}x{b.columns} and out {d.rows}x{d.columns}; "
            "they do not fit together"
        )
    if oriented(d, "out")[1] or d.rows % program.m or d.columns % (8 * program.n):
        raise TiercelValueError(
            f"out of {d.rows}x{d.columns} must be row-major and divide into "
            f"{program.m}x{program.n} blocks with columns a multiple of 8"
        )


@lru_cache(maxsize=64)
def kernel(
    config: Config, lowered: Fused, where: Where, device: int, epilogue: EpilogueText | None = None
) -> Kernel:
    """The compiled kernel of a program, loaded on a device."""
    name = f"{lowered.program.name}-{config.name}"
    code = cubin(fused_source.text(config, lowered, where, epilogue), name)
    # And it must not start before the counters are zero.
    shared, together = fused_source.shared_bytes(config, where), waits(lowered)
    return Kernel(code, device, shared, overlap=not together, cooperative=together)


def waits(lowered: Fused) -> bool:
    """Whether thread blocks wait for each other: for planes, or for the verdict on all of them."""
    return lowered.left or lowered.right or lowered.repeats
