"""Where walks begin: the classical scheme, and larger or smaller relatives of known schemes.

A good start is worth hours of walking: ⟨3,3,5;36⟩ came after 1 M flips from ⟨3,3,4;29⟩ and the
classical ⟨3,3,1;9⟩ side by side, rank 38. Which scheme of the smaller grid it is matters as much:
450 M flips from one ⟨2,3,4;20⟩ did not lead to ⟨2,3,5;25⟩, 5 M from others did. So every start
first wanders off among the schemes of its parts' ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tiercel.schemes.catalogue import find
from tiercel.schemes.compose import classical, project
from tiercel.schemes.scheme import Scheme
from tiercel.schemes.search.descend import descend_part, wander
from tiercel.schemes.search.node import (
    Factors,
    Grid,
    Node,
    Ring,
    check_width,
    from_scheme,
    pack,
    unpack,
)
from tiercel.schemes.transform import orient

AXES = "mkn"


@dataclass(frozen=True)
class Start:
    """Known schemes side by side along one axis (0, 1, 2 for m, k, n), or a single one."""

    parts: tuple[Scheme, ...]
    axis: int = 0

    @property
    def rank(self) -> int:
        return sum(part.rank for part in self.parts)


def starts(
    grid: Grid, ring: Ring, known: Sequence[Scheme] = (), *, catalogue: bool = True
) -> list[Start]:
    """Starts of a grid, fewest products first.

    Args:
        grid: (m, k, n).
        ring: of the walk.
        known: schemes of any grids to make starts from.
        catalogue: whether the catalogue's schemes are known too.

    Returns:
        The known schemes of the grid; pairs of known ones along each axis; projections of the next
        larger ones; the classical scheme. Only such as have coefficients in the ring.
    """
    check_width(grid, ring)  # before large schemes are built in vain

    def of(size: Grid) -> list[Scheme]:
        return [x for x in _smallest(size, known, catalogue) if fits(x, ring)]

    found = [Start((scheme,)) for scheme in of(grid)]
    for axis in range(3):
        for part in range(1, grid[axis] // 2 + 1):
            rest = of(_with(grid, axis, part))[0]
            found += [
                Start((scheme, rest), axis) for scheme in of(_with(grid, axis, grid[axis] - part))
            ]
        for scheme in of(_with(grid, axis, grid[axis] + 1)):
            if scheme.name != "classical":  # each index leaves other products
                cuts = [project(scheme, AXES[axis], i) for i in range(grid[axis] + 1)]
                found.append(Start((min(cuts, key=lambda x: x.rank),)))
    return sorted(found, key=lambda start: start.rank)


def begin(start: Start, grid: Grid, ring: Ring, rng: np.random.Generator) -> Node:
    """A node of the grid from a start whose parts have wandered off.

    A classical part beside another goes down first, so that a search from the classical scheme has
    starts like ⟨3,2,4;20⟩ twice for ⟨3,4,4⟩.
    """
    parts = []
    for scheme in start.parts:
        node = pack(scheme.grid, ring, from_scheme(scheme))
        if scheme.name != "classical":
            node = wander(node, rng)
        elif len(start.parts) > 1 and min(scheme.grid) > 1:
            node = descend_part(node, rng)
        parts.append((scheme.grid, unpack(node)))
    return pack(grid, ring, _side_by_side(parts, start.axis, grid))


def fits(scheme: Scheme, ring: Ring) -> bool:
    """Whether the scheme's coefficients have a meaning in the ring."""
    matrices = scheme.U, scheme.V, scheme.W
    if not all(x.is_integral for x in matrices):
        return False
    return ring == "mod2" or all(int(np.abs(x.numerators).max()) == 1 for x in matrices)


def _side_by_side(parts: list[tuple[Grid, Factors]], axis: int, grid: Grid) -> Factors:
    """The coefficients of `concatenate`, which itself wants schemes over the integers."""
    stacked = []
    for matrix, axes in enumerate(((0, 1), (1, 2), (0, 2))):
        rows, offset = [], 0
        for size, factors in parts:
            block = np.zeros((len(factors[matrix]), *(grid[x] for x in axes)), np.int8)
            place = [
                slice(offset, offset + size[x]) if x == axis else slice(0, size[x]) for x in axes
            ]
            block[:, *place] = factors[matrix].reshape(-1, *(size[x] for x in axes))
            rows.append(block.reshape(len(block), -1))
            offset += size[axis]
        stacked.append(np.concatenate(rows))
    return stacked[0], stacked[1], stacked[2]


def _smallest(grid: Grid, known: Sequence[Scheme], catalogue: bool) -> list[Scheme]:
    """Known schemes of the grid, smallest rank only, and the classical one last."""
    found = [orient(x, *grid) for x in known if sorted(x.grid) == sorted(grid)]
    found += find(*grid) if catalogue else ()
    least = min((x.rank for x in found), default=0)
    return [*(x for x in found if x.rank == least), classical(*grid)]


def _with(grid: Grid, axis: int, size: int) -> Grid:
    changed = [*grid]
    changed[axis] = size
    return changed[0], changed[1], changed[2]
