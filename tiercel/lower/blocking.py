"""Block sizes of the five loops for one problem and program, and the memory they take.

Pure arithmetic, so that the planner can price a candidate without touching a compiler.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from tiercel.lower.program import Program

PAGE = 4096


def ceil_div(x: int, y: int) -> int:
    """⌈x / y⌉."""
    return -(-x // y)


def round_up(x: int, multiple: int) -> int:
    """The next multiple of ``multiple`` from x on."""
    return ceil_div(x, multiple) * multiple


@dataclass(frozen=True)
class Tile:
    """The micro-kernel's shape: mr × nr registers tile, k in steps of ``chunk``, element bytes."""

    mr: int
    nr: int
    chunk: int
    size: int


@dataclass(frozen=True)
class Target:
    """Wanted sub-block sizes in elements; the actual ones divide the problem evenly.

    ``rows``, ``depth``, ``cols``: of one sub-block (one product's operands). ``k_span``: how much
    of K one pass covers before C is written (and read again by the next pass); ``task_cols``:
    columns of a sub-block that one task computes; ``share_a``: all sums of A are packed before the
    products, once, for all threads. ``in_turn``: each task packs the panels of a plain B itself,
    some at a time, just before it uses them.
    """

    rows: int
    depth: int
    cols: int
    task_cols: int
    k_span: int
    share_a: bool = False
    in_turn: bool = False


@dataclass(frozen=True)
class Blocking:
    """Steps of the loops and what follows from them. Sizes in elements, ``at_*`` etc. in bytes.

    ``mc``, ``nc``, ``kc``: steps of the ic, jc and pc loops. ``k_span``: K is covered in passes of
    this length. ``k_pad``, ``panels``: a packed panel's depth, and panels in a sub-block.
    ``task_panels``: panels that one task computes. ``pack_panels``, ``slice``: panels and rows
    that one packing step stages. ``private``: one thread's region, with the offsets of its buffers;
    ``packed``: packed B of one jc step, 0 where tasks pack in turn; ``packed_pass``: of one pass
    over K. ``packed_a``: packed A that threads share, ``packed_a_step`` of it for each step of ic,
    or 0. ``target``: what these sizes were made for; the same target gives the same nc, kc, k_span
    and packed B for any M.
    """

    mc: int
    nc: int
    kc: int
    k_span: int
    k_pad: int
    panels: int
    task_panels: int
    pack_panels: int
    slice: int
    a_block: int
    b_block: int
    c_block: int
    at_stage_a: int
    at_pack_a: int
    at_scratch: int
    at_stage_b: int
    at_tables: int
    at_pack_b: int
    private: int
    packed: int
    packed_pass: int
    packed_a: int
    packed_a_step: int
    target: Target

    def workspace(self, threads: int) -> int:
        """Extra bytes of a call that packs B itself."""
        return self.packed + self.packed_a + threads * self.private


def _even(extent: int, parts: int, wanted: int, multiple: int) -> int:
    """Step along one dimension: ``parts`` sub-blocks of about ``wanted``, balanced over extent."""
    steps = max(1, round(extent / (parts * wanted)))
    return parts * round_up(ceil_div(extent, steps * parts), multiple)


def blocking(
    M: int,
    N: int,
    K: int,
    program: Program,
    tile: Tile,
    target: Target,
    *,
    by_row: bool = True,
    views: int = 0,
) -> Blocking:
    """Block sizes near ``target`` for C (M, N) = A (M, K) · B (K, N).

    ``by_row``: B is row-major, so several panels are packed at a time (long reads). ``views``: most
    views of B that a step of the outer level sums (``steps.py``), 0 without one. An outer level
    takes a spare staged block of each operand, and statistics of the scales of each view of B.
    """
    m, k, n, planes, size = program.m, program.k, program.n, program.planes, tile.size
    k_span = _even(K, 1, target.k_span, 1)
    mc = _even(M, m, target.rows, tile.mr)
    kc = _even(k_span, k, target.depth, tile.chunk)
    nc = _even(N, n, target.cols, tile.nr)
    height, depth, panels = mc // m, kc // k, nc // n // tile.nr
    task_panels = ceil_div(panels, max(1, round(panels * tile.nr / target.task_cols)))
    pack_panels = min(PACK_PANELS if by_row else 1, panels)
    slice_bytes = planes * k * n * pack_panels * tile.nr * size
    rows = min(max(16, STAGE_BYTES // slice_bytes // 16 * 16), depth)
    a_block = round_up(height * depth * size, 64)
    b_block = pack_panels * rows * tile.nr * size
    c_block = height * task_panels * tile.nr * size
    summed, spare = int(views > 0 or not program.plain), int(views > 0)
    own = int(not target.share_a)
    scales = max(1, views) * pack_panels * tile.nr * size
    buffers = (
        (planes * m * k * max(own, summed) + spare) * a_block,
        summed * own * a_block,
        planes * m * n * c_block,
        summed * planes * k * n * (b_block + scales) + spare * b_block,
        8 * sum(program.terms(x) for x in "abc"),
        pack_panels * depth * tile.nr * size if target.in_turn else 0,
    )
    at_stage_a, at_pack_a, at_scratch, at_stage_b, at_tables, at_pack_b, private = accumulate(
        (round_up(nbytes, PAGE) for nbytes in buffers), initial=0
    )
    products = ceil_div(k_span, kc) * len(program.products)
    step = 0 if target.in_turn else products * panels * depth * tile.nr * size
    step_a = 0 if own else round_up(products * a_block + STATS_BYTES, PAGE)
    return Blocking(
        mc, nc, kc, k_span, depth, panels, task_panels, pack_panels, rows,
        a_block, b_block, c_block,
        at_stage_a, at_pack_a, at_scratch, at_stage_b, at_tables, at_pack_b, private,
        step, ceil_div(N, nc) * step, ceil_div(M, mc) * step_a, step_a, target,
    )  # fmt: skip


PACK_PANELS = 4  # adjacent panels packed together from a row-major B: 256-byte reads
STATS_BYTES = 64  # scales of the rows of a step of ic, behind its packed sums
STAGE_BYTES = 64 << 10  # staged slices of B: in L2, beside the panels being written
