"""Scheme → accumulator program: the entry of this package."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from tiercel.errors import TiercelValueError
from tiercel.lower.accumulator.build import build
from tiercel.lower.accumulator.cost import Cost
from tiercel.lower.accumulator.program import AccumulatorProgram
from tiercel.lower.accumulator.search import best_route
from tiercel.lower.accumulator.slots import price
from tiercel.lower.accumulator.sums import sums_of
from tiercel.lower.accumulator.verify import verify
from tiercel.schemes import normalise, permute_products

if TYPE_CHECKING:
    from tiercel.schemes import Scheme


def accumulate(
    *schemes: Scheme, cost: Cost | None = None, drafts: int | None = None, seed: int = 0
) -> AccumulatorProgram:
    """The cheapest accumulator program of a scheme, or of the best among several.

    Every product is computed once. The order and the signs of a scheme's products do not matter.
    Catalogue schemes come from shipped routes at once; others are searched, a few seconds for up to
    49 products, and then kept in the disk cache. The program is verified to multiply.

    Args:
        schemes: at least one, of equal grids; several compete by the price of their transfers,
            then by the planes that must be written.
        cost: prices and register capacity; by default `Cost()`.
        drafts: effort of the search.
        seed: of the search.

    Raises:
        TiercelValueError: no scheme, or schemes of different grids.

    >>> from tiercel import schemes
    >>> print(accumulate(schemes.get("winograd")))  # doctest: +ELLIPSIS
    winograd: 7 multiplies, 3 saves, 3 loads; 2 register and 0 scratch slots; grid 2×2×2
      acc  = (A0) · (B0)
      r0 = acc
      ...
    """
    if len({scheme.grid for scheme in schemes}) != 1:
        raise TiercelValueError(
            "accumulate needs one scheme, or several of the same grid that compete: got "
            f"{', '.join(map(str, schemes)) or 'none'}"
        )
    made = [_accumulate(scheme, cost or Cost(), drafts, seed) for scheme in schemes]
    return min(made, key=lambda x: (x[0], x[1].written_planes("a") + x[1].written_planes("b")))[1]


@lru_cache(maxsize=256)
def _accumulate(
    scheme: Scheme, cost: Cost, drafts: int | None, seed: int
) -> tuple[float, AccumulatorProgram]:
    scheme = canonical(scheme)
    sums = sums_of(scheme)
    route = best_route(sums, cost, drafts=drafts, seed=seed)
    return price(sums, route, cost), verify(build(scheme, route, cost))


def canonical(scheme: Scheme) -> Scheme:
    """Normalised, products in the order of their rows of W: equal outputs give equal routes."""
    scheme = normalise(scheme)
    rows = [tuple(row) for row in scheme.W.fractions()]
    return permute_products(scheme, sorted(range(scheme.rank), key=rows.__getitem__, reverse=True))
