"""Ways to run a product on a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, reduce
from math import prod
from typing import Any, Literal

from tiercel.lower.accumulator import accumulate
from tiercel.lower.program import Program, lower
from tiercel.schemes import Scheme, get, names, tensor

Kind = Literal["vendor", "plain", "fused", "portable"]

#: Names that stand for several levels, outermost first; others are written with a star between.
LEVELS = {
    "strassen2": ("strassen",) * 2, "strassen3": ("strassen",) * 3,
    "winograd2": ("winograd",) * 2, "accurate2": ("accurate",) * 2,
}  # fmt: skip

#: What the planner considers by itself around the vendor's routine, besides Strassen's levels. The
#: short side of a 4×4×2 grid lies along a short side of the product: less is written there, and
#: planes stay large. Of its 26, of 38 and of 47 products: 18.8, 20.8 and 21.7 % are saved at a
#: growth of 2.9, 2.9 and 3.6, beside 23.4 % and 4 of Strassen's two levels. Chosen greedily, out of
#: all grids of the catalogue, for the products of ``bench/layers.py`` in float32; the three that
#: were found last add 0.4 % to the mean gain where B is packed, and all others 0.3 % together.
PORTABLE = (
    "strassen", "strassen2", "strassen3", "lean-4x2x4", "lean-4x4x2", "lean-4x4x3", "lean-4x5x3",
    "strassen*lean-4x4x2", "strassen*lean-5x3x4",
)  # fmt: skip
PORTABLE_FLOAT32 = ("hopcroft-kerr-4x3x2", "accurate-4x5x2", "strassen*accurate-3x5x4")


@dataclass(frozen=True)
class Variant:
    """``kind``: "vendor" (its library), "plain" (the own classical kernel for Hopper), "fused" (a
    scheme inside that kernel) or "portable" (a scheme around the vendor's library).

    ``schemes``: of each level, outermost first. ``around``: how many levels run one product after
    the other, which takes less memory than all at once.
    """

    kind: Kind
    schemes: tuple[Scheme, ...] = ()
    around: int = 0

    def outer(self) -> Program:
        """The levels that run one product after the other."""
        return program(self.schemes[: self.around], False)

    def inner(self, is_complex: bool) -> Program:
        """The levels whose products are computed at once."""
        return program(self.schemes[self.around :], is_complex)

    @property
    def segments(self) -> int:
        """Parts of K that are added up."""
        return prod(scheme.k for scheme in self.schemes)

    def __str__(self) -> str:
        """What it computes, for people.

        >>> print(str(named("strassen2", around=1)).splitlines()[0])
        around cuBLAS or its like, one after the other: strassen: 7 products, grid 2×2×2
        """
        if not self.schemes:
            return "own kernel, classical" if self.kind == "plain" else "the vendor's library"
        if self.kind == "fused":
            return f"inside one kernel, {accumulate(self.schemes[0])}"
        inner = f"at once, as one batch of the vendor's: {self.inner(False)}"
        if not self.around:
            return inner
        return f"around cuBLAS or its like, one after the other: {self.outer()}\n{inner}"


VENDOR, PLAIN = Variant("vendor"), Variant("plain")


def fused(name: str) -> Variant:
    """The catalogue's scheme of that name inside the own kernel."""
    return Variant("fused", (get(name),))


def named(scheme: Any, *, around: int = 0) -> Variant:
    """The portable variant of a ``Scheme``, or of those that the catalogue has under names.

    >>> [s.grid for s in named("strassen*lean-4x2x4").schemes]
    [(2, 2, 2), (4, 2, 4)]
    """
    if not isinstance(scheme, str):
        return Variant("portable", (scheme,), around)
    levels = LEVELS.get(scheme) or ((scheme,) if scheme in names() else scheme.split("*"))
    return Variant("portable", tuple(map(get, levels)), around)


def considered(dtype: str) -> tuple[str, ...]:
    """The schemes that the planner tries by itself around the vendor's routine."""
    return PORTABLE + (PORTABLE_FLOAT32 if dtype == "float32" else ())


@lru_cache(maxsize=256)
def program(schemes: tuple[Scheme, ...], is_complex: bool) -> Program:
    """The program of some levels; without any that of the classical product."""
    whole = reduce(tensor, schemes) if schemes else None
    return lower(whole, is_complex=is_complex)
