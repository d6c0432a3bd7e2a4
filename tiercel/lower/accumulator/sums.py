"""Partial sums of outputs: the values that an accumulator may hold on its way to a block of C.

Output j is the sum c_j = Σ_r W[r, j] p_r. A *partial sum* is c_j restricted to some of its products
and counts up to a scalar factor, because a load, a store and a plane may each carry one. The same
value may be a partial sum of several outputs: those *readers* can share it. Sets of products and
sets of outputs are bit masks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tiercel.schemes import Scheme

Value = tuple[int, int]  # the first output that reads it, its set of products


def members(mask: int) -> Iterator[int]:
    """The positions of the bits of ``mask``, lowest first.

    >>> list(members(0b1010))
    [1, 3]
    """
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


@dataclass(frozen=True)
class Sums:
    """The outputs of a scheme as sums of its products. ``weights[j]``: product → coefficient."""

    products: int
    weights: tuple[dict[int, Fraction], ...]
    _readers: dict[Value, int] = field(default_factory=dict, repr=False)

    @property
    def outputs(self) -> int:
        return len(self.weights)

    @cached_property
    def support(self) -> tuple[int, ...]:
        """Set of products of each output."""
        return tuple(sum(1 << r for r in weights) for weights in self.weights)

    @cached_property
    def users(self) -> tuple[int, ...]:
        """Set of outputs of each product."""
        return tuple(
            sum(1 << j for j, weights in enumerate(self.weights) if r in weights)
            for r in range(self.products)
        )

    @cached_property
    def shared(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """``shared[i][j]``: maximal sets of products on which outputs i and j are proportional."""
        return tuple(
            tuple(_proportional(left, right) for right in self.weights) for left in self.weights
        )

    def readers(self, output: int, products: int) -> int:
        """The outputs of which c_output restricted to ``products`` is a partial sum."""
        key = (output, products)
        found = self._readers.get(key)
        if found is None:
            found = 0
            for j, parts in enumerate(self.shared[output]):
                if any(products & ~part == 0 for part in parts):
                    found |= 1 << j
            self._readers[key] = found
        return found

    def value(self, output: int, products: int) -> Value:
        """One name for equal partial sums: the first reader and the products."""
        readers = self.readers(output, products)
        return (readers & -readers).bit_length() - 1, products


def sums_of(scheme: Scheme) -> Sums:
    """The outputs of a scheme, exactly.

    >>> from tiercel import schemes
    >>> winograd = sums_of(schemes.get("winograd"))
    >>> [f"{mask:07b}" for mask in winograd.support]
    ['0000011', '0110101', '1101001', '1110001']
    """
    columns = scheme.W.fractions().T
    weights = tuple({r: Fraction(w) for r, w in enumerate(column) if w != 0} for column in columns)
    return Sums(scheme.rank, weights)


def _proportional(left: dict[int, Fraction], right: dict[int, Fraction]) -> tuple[int, ...]:
    by_ratio: dict[Fraction, int] = {}
    for r in left.keys() & right.keys():
        ratio = left[r] / right[r]
        by_ratio[ratio] = by_ratio.get(ratio, 0) | 1 << r
    return tuple(by_ratio[ratio] for ratio in sorted(by_ratio))
