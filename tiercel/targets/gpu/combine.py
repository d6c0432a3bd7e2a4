"""The kernel that reads an operand once and writes all sums of its blocks.

A thread block owns one tile of the planes: it loads that tile of every block of the operand into
registers, and writes every plane's sum of them. With several *sources* (views that an outer
level adds) a tile is the sum of the sources' tiles. Elements past a view's edge count as zero, so
that planes may be larger than the blocks they are made from.

The guard's statistics (``guard.py``) are taken from the registers on the way, of each source for
itself: no pass of their own over the operand.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from tiercel.lower.program import Program, Term
from tiercel.targets.gpu.source import kernel, weighted_sum


@dataclass(frozen=True, eq=False)  # compared by identity: ``combination`` makes each one once
class Combination:
    """What one combination kernel does.

    Block ``(plane·rows + i)·cols + j`` of ``sums`` lies at row i and column j of a ``rows`` ×
    ``cols`` grid; plane 1 is the imaginary part. ``scaled``: elements are multiplied by a power of
    two that brings the sums into the range of float16. ``measured``: the guard's segments run along
    ``"rows"`` or, with a single source, ``"cols"`` of the kernel's view, or nothing is measured.
    """

    name: str
    rows: int
    cols: int
    sums: tuple[tuple[Term, ...], ...]
    sources: int
    scaled: bool
    measured: str | None


@lru_cache(maxsize=512)
def combination(
    program: Program,
    operand: str,
    *,
    sources: int = 1,
    skip: frozenset[int] = frozenset(),
    transposed: bool = False,
    conjugated: bool = False,
    scaled: bool = False,
    measured: bool = False,
) -> Combination:
    """The combination kernel's description for operand ``"a"`` or ``"b"`` of a program.

    Args:
        program: whose sums.
        operand: ``"a"`` or ``"b"``.
        sources: number of views that are added up.
        skip: products whose sum is not written.
        transposed: the kernel sees the operand's transpose.
        conjugated: the operand's imaginary plane is stored with the other sign.
        scaled: see ``Combination``.
        measured: take the guard's statistics along K.

    >>> from tiercel.schemes import get
    >>> from tiercel.lower.program import lower
    >>> combination(lower(get("strassen")), "b", skip=frozenset(range(2, 7))).sums
    (((0, 1.0), (3, 1.0)), ((0, 1.0),))
    """
    rows, cols = {"a": (program.m, program.k), "b": (program.k, program.n)}[operand]

    def placed(term: Term) -> Term:
        block, coef = term
        plane, inner = divmod(block, rows * cols)
        if transposed:
            inner = inner % cols * rows + inner // cols
        return plane * rows * cols + inner, -coef if conjugated and plane else coef

    sums = tuple(
        tuple(placed(term) for term in getattr(product, operand))
        for r, product in enumerate(program.products)
        if r not in skip
    )
    grid = (cols, rows) if transposed else (rows, cols)
    along = None
    if measured:
        along = "rows" if (operand == "a") != transposed else "cols"
    return Combination(f"{operand} of {program.name}", *grid, sums, sources, scaled, along)


@lru_cache(maxsize=512)
def combine_kernel(what: Combination) -> Any:
    """The Triton kernel; ``planes.py`` launches it."""
    return kernel("combine", emit(what))


def emit(what: Combination) -> str:
    """Source of the kernel."""
    used = sorted({block for terms in what.sums for block, _ in terms})
    count = what.rows * what.cols
    blocks = [Block(x, x % count // what.cols, x % what.cols, x // count) for x in used]
    looped = what.measured == "cols"  # rows enough for a segment: tiles one below the other
    body = [*_loads(what, blocks), *_stores(what)]
    lines = [
        "def combine(",
        *(
            f"    s{t}, rows{t}, cols{t},{f' coef{t}: tl.float64,' if t else ''}"
            for t in range(what.sources)
        ),
        "    stride_row, stride_col,",
        "    planes, plane_stride, height, width,",
        *(["    largest, growth_bits,"] if what.scaled else []),
        *(["    extremes,"] if what.measured else []),
        "    ROWS: tl.constexpr, COLS: tl.constexpr, TILES: tl.constexpr, SHORTEST: tl.constexpr,",
        "    COMPUTE: tl.constexpr,",
        "):",
        f'    """{len(what.sums)} sums, {what.name}."""',
        "    col_tiles = tl.cdiv(width, COLS)",
        "    row0 = tl.program_id(0) // col_tiles * (ROWS * TILES)",
        "    col0 = tl.program_id(0) % col_tiles * COLS",
        "    col = col0 + tl.arange(0, COLS)[None, :]",
        "    down = height.to(tl.int64) * stride_row",
        "    right = width.to(tl.int64) * stride_col",
        "    step = plane_stride.to(tl.int64)",
        *(f"    factor{t} = tl.cast(coef{t}, COMPUTE)" for t in range(1, what.sources)),
        *(
            f"    wide{t}_{j} = (col < width) & (col < cols{t} - {j} * width)"
            for t in range(what.sources)
            for j in sorted({block.j for block in blocks})
        ),
        *(["    scale = power_of_two(largest, growth_bits, 1)"] if what.scaled else []),
        *(_BITS if what.measured else []),
        *([f"    n{x.index} = tl.zeros((ROWS, COLS), COMPUTE)" for x in blocks] if looped else []),
        *(["    for tile in range(TILES):"] if looped else ["    tile = 0"]),
        *((f"    {line}" for line in body) if looped else body),
        *(_down(blocks) if looped else []),
        *(_RAISED if what.measured else []),
    ]
    return "\n".join(lines) + "\n"


class Block(NamedTuple):
    """Block number ``index`` at (i, j) of the grid, of the real (0) or imaginary (1) plane."""

    index: int
    i: int
    j: int
    plane: int


def _loads(what: Combination, blocks: list[Block]) -> list[str]:
    lines = [
        "    row = row0 + tile * ROWS + tl.arange(0, ROWS)[:, None]",
        "    at = row.to(tl.int64) * stride_row + col.to(tl.int64) * stride_col",
        *(
            f"    tall{t}_{i} = (row < height) & (row < rows{t} - {i} * height)"
            for t in range(what.sources)
            for i in sorted({block.i for block in blocks})
        ),
    ]
    for block in blocks:
        index, i, j, plane = block
        offset = f"{i} * down + {j} * right" + (f" + {plane}" if plane else "")
        for t in range(what.sources):
            mask = f"tall{t}_{i} & wide{t}_{j}"
            load = f"tl.load(s{t} + ({offset}) + at, mask={mask}, other=0.0).to(COMPUTE)"
            lines.append(f"    x = {load}")
            # At once, not after all loads: two sources of 16 blocks take 144 registers, not 252.
            if what.measured == "rows":
                lines += _along(block, t, first=block is blocks[0] and t == 0)
            lines.append(f"    x{index} += factor{t} * x" if t else f"    x{index} = x")
        if what.measured == "cols":
            lines.append(f"    n{index} += tl.abs(x{index})")
    if what.scaled:
        lines += [f"    x{block.index} *= scale" for block in blocks]
    return lines


def _stores(what: Combination) -> list[str]:
    lines = [
        "    element = planes.dtype.element_ty",
        "    inside = (row < height) & (col < width)",
        "    at = row.to(tl.int64) * width + col",
    ]
    for r, terms in enumerate(what.sums):
        total = weighted_sum(tuple((f"x{block}", coef) for block, coef in terms))
        lines.append(f"    tl.store(planes + {r} * step + at, ({total}).to(element), mask=inside)")
    return lines


_BITS = [
    "    bits = extremes.dtype.element_ty",
    '    infinity = tl.full((), float("inf"), COMPUTE).to(bits, bitcast=True)',
]
_RAISED = [
    '    tl.atomic_max(extremes, tl.max(most), sem="relaxed")',
    '    tl.atomic_max(extremes + 1, tl.max(gap), sem="relaxed")',
]


def _along(block: Block, source: int, *, first: bool) -> list[str]:
    """The guard's segments in ``x``, a source's tile of a block: each row is one."""
    length = f"tl.minimum(tl.minimum(width, cols{source} - {block.j} * width) - col0, COLS)"
    total = "tl.sum(tl.abs(x), 1, keep_dims=True)"
    return _judged(total, length, f"tall{source}_{block.i}", first)


def _down(blocks: list[Block]) -> list[str]:
    """The guard's segments in the magnitudes that were added up over tiles: each column is one."""
    lines = []
    for block in blocks:
        rows = f"tl.minimum(height, rows0 - {block.i} * height)"
        length = f"tl.minimum({rows} - row0, ROWS * TILES)"
        total = f"tl.sum(n{block.index}, 0, keep_dims=True)"
        lines += _judged(total, length, f"wide0_{block.j}", block is blocks[0])
    return lines


def _judged(total: str, length: str, there: str, first: bool) -> list[str]:
    """The largest and smallest mean of segments so far, see ``guard.segment_means``."""
    return [
        f"    length = {length}",
        f"    mean = ({total} / tl.maximum(length, SHORTEST)).to(bits, bitcast=True)",
        f"    judged = {there} & (length >= SHORTEST)",
        "    below = tl.where(judged, infinity - mean, 0)",
        "    most = " + ("mean" if first else "tl.maximum(most, mean)"),
        "    gap = " + ("below" if first else "tl.maximum(gap, below)"),
    ]
