"""What the body of a loop gets to know of it: ``Function.loop`` and ``counted_forever``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tiercel.targets.cpu.codegen.values import I64, Val

if TYPE_CHECKING:
    from tiercel.targets.cpu.codegen.emit import Function


@dataclass
class Loop:
    """Handle of a running loop: the induction value and the carried values.

    Inside the body ``carried`` are the values of this iteration; ``next(...)`` names those of the
    following one. After the loop ``results`` are the final values.
    """

    i: Val
    carried: list[Val]
    following: list[Val] = field(default_factory=list)
    results: list[Val] = field(default_factory=list)

    def next(self, *values: Val) -> None:
        self.following = list(values)


class Turn:
    """Counter of an endless loop; compare it like a value."""

    def __init__(self, f: Function) -> None:
        self._f, self._slot = f, f.stack(I64, 1, 8)
        f.store(f.i64(0), self._slot, 8)

    def _now(self) -> Val:
        return self._f.load(self._slot, I64, 8)

    def advance(self) -> None:
        self._f.store(self._now() + 1, self._slot, 8)

    def restart(self) -> None:
        self._f.store(self._f.i64(0), self._slot, 8)

    def __lt__(self, n: int) -> Val:
        return self._now() < n

    def __ge__(self, n: int) -> Val:
        return self._now() >= n
