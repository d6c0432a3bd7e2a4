"""The kernel that reads every product once and writes every block of C once.

The reverse of ``combine.py``: a thread block loads its tile of all products, forms the blocks of C
from them, and writes them to one or several *targets* (the blocks of C of an outer level), each as
``coef · block`` or ``coef · block + beta · prior``. The first form reads nothing from C, which may
be uninitialised.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tiercel.lower.program import Program, Term
from tiercel.targets.gpu.source import kernel, weighted_sum


@dataclass(frozen=True, eq=False)  # compared by identity: ``update`` makes each one once
class Update:
    """What one update kernel does: block ``(plane·rows + i)·cols + j`` is a sum of products.

    ``products``: blocks that each product goes to; ``priors``: for each target, whether something
    is added to its blocks.
    """

    name: str
    rows: int
    cols: int
    products: tuple[tuple[Term, ...], ...]
    priors: tuple[bool, ...]
    scaled: bool


@lru_cache(maxsize=512)
def update(
    program: Program,
    priors: tuple[bool, ...] = (False,),
    *,
    transposed: bool = False,
    scaled: bool = False,
) -> Update:
    """The update kernel's description; ``transposed``: it sees the transpose of C."""

    def placed(block: int) -> int:
        plane, inner = divmod(block, program.m * program.n)
        if transposed:
            inner = inner % program.n * program.m + inner // program.n
        return plane * program.m * program.n + inner

    grid = (program.n, program.m) if transposed else (program.m, program.n)
    products = tuple(tuple((placed(x), coef) for x, coef in p.c) for p in program.products)
    return Update(f"C of {program.name}", *grid, products, priors, scaled)


@lru_cache(maxsize=512)
def update_kernel(what: Update) -> Any:
    """The Triton kernel; ``planes.py`` launches it."""
    return kernel("update", emit(what))


def emit(what: Update) -> str:
    """Source of the kernel."""
    count = what.rows * what.cols
    used = sorted({block for terms in what.products for block, _ in terms})
    blocks = [(x, x % count // what.cols, x % what.cols, x // count) for x in used]
    lines = [
        "def update(",
        "    products, plane_stride, height, width,",
        *(
            f"    o{t}, rows{t}, cols{t}, coef{t}: tl.float64,"
            + (f" p{t}, prior_row{t}, prior_col{t}, beta{t}: tl.float64," if prior else "")
            for t, prior in enumerate(what.priors)
        ),
        "    out_row, out_col,",
        *(["    largest_a, largest_b, growth_a, growth_b,"] if what.scaled else []),
        "    ROWS: tl.constexpr, COLS: tl.constexpr, COMPUTE: tl.constexpr,",
        "):",
        f'    """{what.name} from {len(what.products)} products."""',
        "    col_tiles = tl.cdiv(width, COLS)",
        "    row = tl.program_id(0) // col_tiles * ROWS + tl.arange(0, ROWS)[:, None]",
        "    col = tl.program_id(0) % col_tiles * COLS + tl.arange(0, COLS)[None, :]",
        "    inside = (row < height) & (col < width)",
        "    at = row.to(tl.int64) * width + col",
        "    step = plane_stride.to(tl.int64)",
    ]
    started: set[int] = set()
    for r, terms in enumerate(what.products):
        lines.append(f"    p = tl.load(products + {r} * step + at, mask=inside, other=0.0)")
        for block, coef in terms:
            term = weighted_sum((("p", coef),))
            lines.append(f"    c{block} {'+=' if block in started else '='} {term}")
            started.add(block)
    if what.scaled:
        lines += [
            "    scale_a = power_of_two(largest_a, growth_a, -1)",
            "    scale_b = power_of_two(largest_b, growth_b, -1)",
            *(f"    c{block} = c{block} * scale_a * scale_b" for block in used),
        ]
    lines += [
        "    at = row.to(tl.int64) * out_row + col.to(tl.int64) * out_col",
        "    down = height.to(tl.int64) * out_row",
        "    right = width.to(tl.int64) * out_col",
    ]
    for t, prior in enumerate(what.priors):
        lines.append(f"    factor = tl.cast(coef{t}, COMPUTE)")
        if prior:
            lines += [
                f"    share = tl.cast(beta{t}, COMPUTE)",
                f"    before = row.to(tl.int64) * prior_row{t} + col.to(tl.int64) * prior_col{t}",
                f"    prior_down = height.to(tl.int64) * prior_row{t}",
                f"    prior_right = width.to(tl.int64) * prior_col{t}",
            ]
        for block, i, j, plane in blocks:
            part = f" + {plane}" if plane else ""
            value = f"factor * c{block}"
            edges = f"(row < rows{t} - {i} * height) & (col < cols{t} - {j} * width)"
            lines.append(f"    mask = inside & {edges}")
            if prior:
                place = f"p{t} + ({i} * prior_down + {j} * prior_right{part}) + before"
                lines.append(f"    prior = tl.load({place}, mask=mask, other=0.0).to(COMPUTE)")
                value += " + share * prior"
            place = f"o{t} + ({i} * down + {j} * right{part}) + at"
            lines.append(f"    tl.store({place}, ({value}).to(o{t}.dtype.element_ty), mask=mask)")
    return "\n".join(lines) + "\n"
