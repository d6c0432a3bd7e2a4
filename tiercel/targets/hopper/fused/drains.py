"""Loads and stores that a fused program can hide behind its products.

Between two products the consumers *drain*: the accumulator is at rest, and the tensor cores wait.
64 registers of each thread, the box, let transfers to and from memory happen while the tensor
cores multiply instead: what is stored or saved leaves after its drain, a sum that is loaded
arrives before its drain. One of either fits into the box at a time. But sums commute: a load may
as well come after the next product, or in the middle of one, which costs only one more drain.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise

from tiercel.lower.accumulator.program import Load, Multiply, Save, Step, Store


@dataclass
class Drain:
    """Products, and what is done with their sum, ``after`` them."""

    products: list[Multiply] = field(default_factory=list)
    after: list[Save | Load | Store] = field(default_factory=list)

    @property
    def first(self) -> int:
        """How many loads ``after`` begins with."""
        rest = (i for i, step in enumerate(self.after) if not isinstance(step, Load))
        return next(rest, len(self.after))

    @property
    def parts(self) -> tuple[Load, ...]:
        """Loads whose sums arrive while the products are multiplied, one in each part of them.

        The first loads, and one that only saves precede.
        """
        found = [x for x in self.after[: self.first] if isinstance(x, Load)]
        saved = set()
        for step in self.after[self.first :]:
            if isinstance(step, Load) and step.slot not in saved:
                found.append(step)
            if not isinstance(step, Save):
                break
            saved.add(step.slot)
        return tuple(found)

    @property
    def leaving(self) -> Save | Store | None:
        """What leaves while the next products are multiplied."""
        last = self.after[-1] if self.after else None
        return None if isinstance(last, Load) else last


def drains(steps: Iterable[Step]) -> tuple[Drain, ...]:
    """Cut a program into drains, loads moved behind products where that hides them.

    >>> from tiercel import schemes
    >>> from tiercel.lower.accumulator import accumulate
    >>> program = accumulate(schemes.get("winograd"))
    >>> [len(drain.parts) for drain in drains(program.steps)]
    [0, 0, 0, 1, 0, 1, 1]
    """
    found: list[Drain] = []
    for step in steps:
        if not isinstance(step, Multiply):
            found[-1].after.append(step)
        elif found and not found[-1].after:
            found[-1].products.append(step)
        else:
            found.append(Drain([step]))
    for this, following in pairwise(found):
        _postpone(this, following)
    for drain in found:
        _save_first(drain)
    return tuple(found)


def _postpone(this: Drain, following: Drain) -> None:
    """Move the last loads of a drain to the following one, but one that a free box can hold."""
    kept = list(this.after)
    while kept and isinstance(kept[-1], Load):
        kept.pop()
    loads = [step for step in this.after[len(kept) :] if isinstance(step, Load)]
    if loads and not kept:
        kept.append(loads.pop(0))
    if loads and loads[0].clear:
        loads[0] = replace(loads[0], clear=False)
        following.products[0] = replace(following.products[0], clear=True)
    this.after, following.after = kept, [*loads, *following.after]


def _save_first(drain: Drain) -> None:
    """Of what leaves together the last is hidden: let it be a store, which takes longer."""
    after = drain.after
    for i in range(len(after) - 1, 0, -1):
        if isinstance(after[i], Save) and isinstance(after[i - 1], Store):
            after[i - 1 : i + 1] = after[i], after[i - 1]
