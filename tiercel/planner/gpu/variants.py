"""Ways to run a product on a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any, Literal

from tiercel.lower.accumulator import Cost, accumulate
from tiercel.lower.program import Program, lower
from tiercel.schemes import Scheme, get, tensor

Kind = Literal["vendor", "plain", "fused", "portable"]

#: Names that stand for several levels of one scheme.
LEVELS = {
    "strassen2": ("strassen", 2), "strassen3": ("strassen", 3),
    "winograd2": ("winograd", 2), "accurate2": ("accurate", 2),
}  # fmt: skip

#: What the planner considers by itself around the vendor's routine, and inside the Hopper kernel:
#: there Winograd's scheme needs the fewest transfers (docs/fused-schemes.md).
PORTABLE = ("strassen", "strassen2", "strassen3")
FUSED = "winograd"


@dataclass(frozen=True)
class Variant:
    """``kind``: "vendor" (its library), "plain" (the own classical kernel for Hopper), "fused" (a
    scheme inside that kernel) or "portable" (a scheme around the vendor's library).

    ``levels``: how often ``scheme`` is applied. ``around``: how many of them run one product after
    the other, which takes less memory than all at once.
    """

    kind: Kind
    scheme: Scheme | None = None
    levels: int = 0
    around: int = 0

    def outer(self) -> Program:
        """The levels that run one product after the other."""
        return program(self.scheme, self.around, False)

    def inner(self, is_complex: bool) -> Program:
        """The levels whose products are computed at once."""
        return program(self.scheme, self.levels - self.around, is_complex)

    def __str__(self) -> str:
        """What it computes, for people.

        >>> print(str(named("strassen2", around=1)).splitlines()[0])
        around cuBLAS or its like, one after the other: strassen: 7 products, grid 2×2×2
        """
        if self.scheme is None:
            return "own kernel, classical" if self.kind == "plain" else "the vendor's library"
        if self.kind == "fused":
            return f"inside one kernel, {accumulate(self.scheme, cost=Cost(registers=1))}"
        inner = f"at once, as one batch of the vendor's: {self.inner(False)}"
        if not self.around:
            return inner
        return f"around cuBLAS or its like, one after the other: {self.outer()}\n{inner}"


VENDOR, PLAIN = Variant("vendor"), Variant("plain")


def named(scheme: Any, *, around: int = 0) -> Variant:
    """The portable variant of a ``Scheme``, or of one that the catalogue has under a name."""
    base, levels = LEVELS.get(scheme, (scheme, 1)) if isinstance(scheme, str) else (scheme, 1)
    found = get(base) if isinstance(base, str) else base
    return Variant("portable", found, levels, around)


@lru_cache(maxsize=256)
def program(scheme: Scheme | None, levels: int, is_complex: bool) -> Program:
    """The program of some levels of a scheme; without levels that of the classical product."""
    whole = reduce(tensor, [scheme] * levels) if scheme is not None and levels else None
    return lower(whole, is_complex=is_complex)
