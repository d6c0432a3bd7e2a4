"""The outer level of a product: steps whose operands are sums of views of A and B.

A scheme that is too large for the caches runs *around* the five loops instead of inside them. One
step multiplies a sum of views of A by a sum of views of B and adds multiples of the result to
several views of C. The sums are formed while blocks are staged and C is updated when finished tiles
are written, so an outer level needs no memory of its own. K is split into passes the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tiercel.lower.blocking import ceil_div
from tiercel.lower.program import Term
from tiercel.lower.recipe import Recipe


@dataclass(frozen=True)
class View:
    """Rows × cols elements of an operand from (row, col) on, times ``coef``."""

    row: int
    col: int
    rows: int
    cols: int
    coef: float


@dataclass(frozen=True)
class Target:
    """A view of C that a step updates; ``first``: overwrites it; ``last``: no step follows."""

    view: View
    first: bool
    last: bool


@dataclass(frozen=True)
class Step:
    """C targets (+)= (Σ a) · (Σ b), an M × N × K product."""

    M: int
    N: int
    K: int
    a: tuple[View, ...]
    b: tuple[View, ...]
    c: tuple[Target, ...]


def sub_problem(recipe: Recipe) -> tuple[int, int, int]:
    """M, N, K of one step (before K is split into passes)."""
    outer = recipe.outer
    if outer is None:
        return recipe.M, recipe.N, recipe.K
    return ceil_div(recipe.M, outer.m), ceil_div(recipe.N, outer.n), ceil_div(recipe.K, outer.k)


@lru_cache(maxsize=4096)
def steps(recipe: Recipe) -> tuple[Step, ...]:
    """All steps of a recipe, in order."""
    M, N, K = sub_problem(recipe)
    outer = recipe.outer
    one: tuple[Term, ...] = ((0, 1.0),)
    products = [(p.a, p.b, p.c, p.first) for p in outer.products] if outer else [
        (one, one, one, (True,))
    ]  # fmt: skip
    k, n = (outer.k, outer.n) if outer else (1, 1)
    last_touch = {block: r for r, (_, _, c, _) in enumerate(products) for block, _ in c}
    span = recipe.blocking.k_span
    made = []
    for r, (a, b, c, first) in enumerate(products):
        for k0 in range(0, K, span):
            depth = min(span, K - k0)
            targets = tuple(
                Target(
                    _view((block, coef), n, (M, N), (recipe.M, recipe.N)),
                    fresh and k0 == 0,
                    last_touch[block] == r and k0 + depth == K,
                )
                for (block, coef), fresh in zip(c, first, strict=True)
            )
            whole_a, whole_b = (recipe.M, recipe.K), (recipe.K, recipe.N)
            made.append(
                Step(
                    M, N, depth,
                    tuple(_view(t, k, (M, K), whole_a, cols=(k0, depth)) for t in a),
                    tuple(_view(t, n, (K, N), whole_b, rows=(k0, depth)) for t in b),
                    targets,
                )
            )  # fmt: skip
    return tuple(made)


def _view(
    term: Term,
    grid_cols: int,
    block: tuple[int, int],
    whole: tuple[int, int],
    rows: tuple[int, int] | None = None,
    cols: tuple[int, int] | None = None,
) -> View:
    """Block ``term``, or a range (start, length) of its rows or columns, cut at the edge."""
    index, coef = term
    row, col = index // grid_cols * block[0], index % grid_cols * block[1]
    (row_skip, tall), (col_skip, wide) = rows or (0, block[0]), cols or (0, block[1])
    row, col = row + row_skip, col + col_skip
    return View(
        min(row, whole[0]),
        min(col, whole[1]),
        max(0, min(tall, block[0] - row_skip, whole[0] - row)),
        max(0, min(wide, block[1] - col_skip, whole[1] - col)),
        coef,
    )
