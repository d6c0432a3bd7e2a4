"""A product by a scheme, inside one kernel: planes, the guard, the classical product if need be."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.lower.accumulator import AccumulatorProgram
from tiercel.lower.accumulator.combining import Amount, Combining, Where, choose
from tiercel.targets.hopper.config import ITEM_BYTES, SLOT_BYTES, Config, Tile
from tiercel.targets.hopper.epilogues.epilogue import EpilogueText
from tiercel.targets.hopper.fused import planes, source, tables, verdict
from tiercel.targets.hopper.fused.packed import PackedOperand, fixed_scale, left_grid, right_grid
from tiercel.targets.hopper.fused.params import NOBODY, Crew, SchemeParams, nothing
from tiercel.targets.hopper.fused.tables import Fused
from tiercel.targets.hopper.fused.verdict import Judge
from tiercel.targets.hopper.fused.workspace import FRESH
from tiercel.targets.hopper.launching.compile import cubin
from tiercel.targets.hopper.launching.driver import (
    Arguments,
    Kernel,
    TensorMap,
    clear_words,
    multiprocessors,
)
from tiercel.targets.hopper.launching.launch import Launch
from tiercel.targets.hopper.operands.operand import Matrix, of_tensor, oriented
from tiercel.targets.hopper.products import heuristic
from tiercel.targets.hopper.products.product import operand_boxes

if TYPE_CHECKING:
    import torch

TILE = Tile(128, 256, 4, "cooperative", cluster_m=2)
# Words before the counters: ``FRESH`` ones, and records of A and B.
HEADER = FRESH + 2 * verdict.RECORD_WORDS
LEAST_K_TILES = 8  # of a product, beside stores and loads: ``kernels/scheme.cuh``
PART_K_TILES = 12  # of one of several parts
MOST_BLOCKS = 12  # of which an idle warp has shared memory for two rows: ``kernels/crew.cuh``
#: Products of a thread block, and k-tiles of each, from which on clusters drift so far apart that
#: they have to keep pace (``kernels/pace.cuh``). Read from DRAM without and with it: 24.1 and 10.1
#: GB at 16384³ (⟨4,2,4;26⟩, 104 products), 7.1 and 4.1 GB at 8192 × 28672 × 8192 (Winograd's, 98),
#: 4.9 and 4.5 GB at 8192 × 8192 × 28672 (28), the same at 8192³ (28).
PACED_PRODUCTS, PACED_K_TILES = 60, 48


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

    before: tuple[Launch, ...]  # planes and measurements that the kernel leaves to others
    multiply: Launch
    workspace: Workspace
    kept: tuple[torch.Tensor, ...]  # what else the launches point to

    def run(self, stream: int) -> None:
        """Enqueue."""
        flags = self.workspace.flags
        clear_words(flags.data_ptr(), flags.numel(), stream)
        self.run_cleared(stream)

    def addresses_only(self) -> FusedLaunch:
        """The same launches; they do not keep alive what they point to."""
        nothing = Workspace(*(x.new_empty(0) for x in self.workspace))
        return replace(self, workspace=nothing, kept=())

    def run_cleared(self, stream: int) -> None:
        """The same where the workspace's flags are zero already."""
        for launch in (*self.before, self.multiply):
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
    judged: bool
    slots: int  # saved sums that a tile has room for

    @property
    def inside(self) -> bool:
        return self.combining.where != "before"

    @property
    def paced(self) -> bool:
        """Whether clusters keep pace."""
        turns = -(-self.rows * self.columns * TILE.cluster // self.blocks)
        products = turns * self.lowered.program.multiplies
        return products >= PACED_PRODUCTS and self.k_tiles >= PACED_K_TILES

    @property
    def counters(self) -> tuple[int, int]:
        """Words that count what of A and of B is combined: workers done, then squares."""
        if not self.inside:
            return 0, 0
        left, right = (1 + math.prod(planes.squares(grid)) for grid in self.grids)
        return left, right if self.dynamic else 0


@dataclass(frozen=True, eq=False)
class Ending:
    """What follows the product inside the kernel: an epilogue, see ``epilogues/fused.py``.

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
    gains: torch.Tensor | None = None,
) -> FusedLaunch:
    """Workspace and launches of out = alpha · A·B, ``a`` (M, K) of the packed operand's dtype.

    ``b`` (K, N) that is not packed is combined in each call, too, by ``program``. Nothing waits for
    the device: the kernel itself notices planes that overflowed or are not finite, judges the data,
    and multiplies classically what it must not multiply by the scheme. ``out`` may be an ``Ending``
    instead, which makes of the product what it likes. ``judge``: what else the data must fulfil.
    ``combining``: by default ``choose`` decides, and with an ``Ending`` no other kernel combines
    planes. ``memory``: of the sizes that an earlier call with operands of the same sizes and
    strides used. ``gains``: of A and B, float32 powers of two on the device, 1 at first. bfloat16
    operands are multiplied by them before they are combined, and each product leaves those that its
    data ask for; so data that are small, but alike from call to call, suit the scheme.

    Raises :class:`TiercelValueError` where the sizes do not divide into the scheme's blocks, or an
    ``Ending`` leaves more blocks to idle warps than they have room for.
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
    shape = _shape(
        left, right, d, program, packed is None, combining, judge is not None, device,
        ending is not None,
    )  # fmt: skip
    blocks = program.m * program.k
    if ending is not None and blocks > MOST_BLOCKS:
        raise TiercelValueError(
            f"{program.name} cuts A into {blocks} blocks, and idle warps combine up to "
            f"{MOST_BLOCKS}; apply the epilogue after the product, or use a smaller scheme"
        )
    if ending is not None:
        shape = replace(shape, slots=source.slots(shape.lowered, postpones=True))
    if gains is not None and _takes_gains(shape):
        shape = replace(shape, lowered=replace(shape.lowered, gained=True))
    if memory is None:
        memory = _workspace(a, shape)
    flags = memory.flags.data_ptr()
    before = [] if judge is None else _measurements(shape, judge, flags, device)
    judging = verdict.argument(judge or verdict.ANY, *_records(flags), tensor)
    places = _gains(shape, flags, gains)
    params, planes_before = _argument(
        left, d, shape, packed, memory, places, alpha, judging, device, ending
    )
    text = None if ending is None else ending.text
    made = kernel(shape.config, shape.lowered, shape.combining.where, device, text)
    kept = (a, tensor, *(out.kept if isinstance(out, Ending) else (out,)))
    if judge is not None:
        kept += (*(() if judge.record is None else (judge.record,)), *(judge.samples or ()))
    kept += () if gains is None else (gains,)
    return FusedLaunch(
        (*planes_before, *before),
        Launch(made, shape.blocks, Arguments(params.pack()), places=params.places),
        memory,
        kept if packed is None else (*kept, packed.memory),
    )


def _records(flags: int) -> tuple[int, int]:
    """Addresses of the records of A and B."""
    left = flags + 4 * FRESH
    return left, left + 4 * verdict.RECORD_WORDS


def _takes_gains(shape: _Shape) -> bool:
    """They are 1 where another kernel combines planes."""
    return shape.inside and not shape.combining.early and shape.lowered.operand == "bfloat16"


def _gains(shape: _Shape, flags: int, gains: torch.Tensor | None) -> list[planes.Gain]:
    """Of A and B, where the kernel finds them."""
    first = gains.data_ptr() if gains is not None and shape.lowered.gained else 0
    used = [record + 4 * verdict.GAIN for record in _records(flags)]
    found = [planes.Gain(first and first + 4 * i, place) for i, place in enumerate(used)]
    return found if shape.dynamic else [found[0], planes.UNITY]


def _measured(shape: _Shape) -> tuple[bool, bool]:
    """Whether combining A, and B, leaves the guard's record behind."""
    config, lowered = shape.config, shape.lowered
    of_a, of_b = (
        shape.judged and bool(tables.sums_of(wanted))
        and planes.is_measured(grid, mn_major, shape.inside)
        for wanted, grid, mn_major in zip(
            (lowered.a_planes, lowered.b_planes), shape.grids,
            (config.a_mn_major, config.b_mn_major), strict=True,
        )
    )  # fmt: skip
    return of_a, of_b and shape.dynamic


def _measurements(shape: _Shape, judge: Judge, flags: int, device: int) -> list[Launch]:
    """Of what is not measured otherwise."""
    config = shape.config
    wanted = (True, judge.record is None)
    return [
        verdict.measurement(grid.view, mn_major, record, device)
        for grid, mn_major, record, known, needed in zip(
            shape.grids, (config.a_mn_major, config.b_mn_major), _records(flags),
            _measured(shape), wanted, strict=True,
        )
        if needed and not known
    ]  # fmt: skip


def _shape(
    a: Matrix, b: Matrix, d: Matrix, program: AccumulatorProgram, dynamic: bool,
    combining: Combining | None, judged: bool, device: int, ending: bool,
) -> _Shape:  # fmt: skip
    M, N = d.rows // program.m, d.columns // program.n
    rows, columns = -(-M // (TILE.m * TILE.cluster_m)), -(-N // (TILE.n * TILE.cluster_n))
    clusters = multiprocessors(device) // TILE.cluster
    item = ITEM_BYTES[a.dtype]
    k_tiles = max(LEAST_K_TILES, -(-a.columns // program.k * item // 128))  # zeros beyond the end
    parts = max(1, min(tables.MOST_PARTS, k_tiles // PART_K_TILES))
    grids = left_grid(a, program), right_grid(b, program)
    if combining is None:
        lowered = tables.lower(program, a.dtype)
        of_a = planes.plane_bytes(grids[0], lowered.a_planes) + a.rows * a.columns * item
        of_b = planes.plane_bytes(grids[1], lowered.b_planes) + b.rows * b.columns * item
        all_k_tiles = k_tiles * program.multiplies
        amount = Amount.of(rows, columns, clusters, all_k_tiles, of_a, of_b if dynamic else 0)
        # With half as many values to a byte whole clusters have the time to judge them.
        combining = choose(amount, program, judged=judged and item < 4, ending=ending)
        if item == 1 or (combining.where == "beside" and a.dtype == "float16"):
            combining = Combining()  # idle warps take longer for other types, or were not measured
    inside = combining.where != "before"
    early = combining.early if inside else 0
    lowered = tables.lower(
        program, a.dtype, inside, inside and dynamic, parts, early, inside and judged
    )
    config = Config(TILE, a.dtype, d.dtype, oriented(a, "a")[1], oriented(b.transposed, "b")[1])
    used = min(clusters, rows * columns + combining.clusters)
    return _Shape(
        lowered, config, used * TILE.cluster, grids,
        combining, rows, columns, k_tiles, dynamic, judged, lowered.slots,
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
    gains: list[planes.Gain], alpha: float, judging: bytes, device: int, ending: Ending | None,
) -> tuple[SchemeParams, tuple[Launch, ...]]:  # fmt: skip
    """The fused kernel's argument, and the launches before it."""
    lowered, (left, right), how = shape.lowered, shape.grids, shape.combining
    program, flags = lowered.program, memory.flags.data_ptr()
    a_planes = memory.a_planes.data_ptr()
    b_planes = (memory.b_planes if packed is None else packed.memory).data_ptr()
    a_box, b_box = operand_boxes(shape.config)
    M, N = d.rows // program.m, d.columns // program.n
    blocks = [d.block(i * M, j * N, M, N) for i in range(program.m) for j in range(program.n)]
    maps = (
        *planes.tensor_maps(left, lowered.a_planes, a_planes, a_box),
        *planes.tensor_maps(right, lowered.b_planes, b_planes, b_box),
        *((x.tensor_map(64) for x in blocks) if ending is None else ending.maps(program)),
    )
    records, measured = _records(flags), _measured(shape)
    first, beside = _crews(shape)
    contents, before = [nothing(gain) for gain in gains], []
    work = [(left, lowered.a_planes, a_planes)]
    if shape.dynamic:
        work.append((right, lowered.b_planes, b_planes))
    scales = [fixed_scale(lowered.operand, wanted) for _, wanted, _ in work]
    if shape.inside:
        ready, group = flags + 4 * HEADER, heuristic.GROUP
        for i, (grid, wanted, address) in enumerate(work):
            early = tables.early_and_late(wanted)[0]
            made = planes.combination(grid, early, address, records[i], scales[i], device)
            before += [] if made is None else [made]
            rest = address + planes.plane_bytes(grid, early)
            contents[i] = planes.arguments(
                grid, rest, records[i], ready, gains[i], scales[i], group
            )
            ready += 4 * shape.counters[i]
    else:
        made = [
            planes.combination(*x, record, scale, device, known)
            for x, scale, record, known in zip(work, scales, records, measured, strict=False)
        ]
        before = [x for x in made if x is not None]
    return SchemeParams(
        maps, *contents, scratch=memory.scratch.data_ptr(), flag=flags,
        block_rows=M, block_columns=N, tile_columns=shape.columns, k_tiles=shape.k_tiles,
        cluster_rows=shape.rows, cluster_columns=shape.columns, group=heuristic.GROUP,
        first_turn=how.clusters, first=first, beside=beside, split=how.split, alpha=alpha,
        plane_scale=math.prod(scales) * (1.0 if packed is None else packed.scale),
        verdict=judging, arrived=flags + 4, paced=flags + 8 if shape.paced else 0,
        epilogue=b"" if ending is None else ending.params,
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
    if a.dtype != operand or operand not in tables.PLANES:
        raise TiercelTypeError(
            f"a is {a.dtype} and b {operand}; the fused kernel takes both as "
            f"{' or both as '.join(tables.PLANES)}"
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
    code = cubin(source.text(config, lowered, where, epilogue), name)
    # Thread blocks wait for each other, for planes and for the verdict on all of them; and the
    # kernel must not start before the counters are zero.
    shared = source.shared_bytes(config, where)
    return Kernel(code, device, shared, overlap=False, cooperative=True)
