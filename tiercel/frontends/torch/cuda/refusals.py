"""Products whose data a guard has refused on the device: the next ones of their kind rest.

A refused product is computed twice, the second time by a kernel that is there to be right, and its
successors' data are likely to be like it. The host waits for nothing: the device's verdict is
copied to pinned memory now and then, and read when some later call asks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tiercel.frontends.torch.cuda.machine import capturing
from tiercel.frontends.torch.tensors.memory import kept_on_host

#: Calls that are left to torch after a refusal; twice as many after each further one, at most:
REST, MOST_REST = 256, 1 << 16

#: One call of so many tells the host how it fared: to enqueue that takes 10 us.
WATCHED = 8


class Refusals:
    """What the host has heard of the products of one kind.

    With deterministic algorithms it remembers nothing: when it hears of a refusal is a matter of
    timing.
    """

    def __init__(self) -> None:
        self._heard: torch.Tensor | None = None
        self._refuses: Callable[[torch.Tensor], bool] = _nothing
        self._rest = self._calls = self._strikes = 0

    def resting(self) -> bool:
        """Whether the next product is torch's."""
        if torch.are_deterministic_algorithms_enabled():
            return False
        if not self._rest and self._heard is not None and self._refuses(self._heard):
            self._rest = min(REST << self._strikes, MOST_REST)
            self._strikes += 1
            self._heard, self._calls = None, 0
        return self._rest > 0

    def allows(self) -> bool:
        """Whether this product may run; one that may not counts as rest."""
        if not self.resting():
            return True
        self._rest -= 1
        return False

    def due(self) -> bool:
        """Whether this product, which runs, is to tell how it fares."""
        self._calls += 1
        if self._calls % WATCHED != 1 or capturing():
            return False
        if self._calls > WATCHED:  # the first ones after the last rest were fine
            self._strikes = 0
        return True

    def tell(self, refuses: Callable[[torch.Tensor], bool], *parts: torch.Tensor) -> None:
        """Copy ``parts`` behind one another, for ``refuses`` to judge them on the host."""
        sizes = [len(part) for part in parts]
        if self._heard is None or len(self._heard) != sum(sizes):
            self._heard = kept_on_host((sum(sizes),), parts[0].dtype)
        self._refuses = refuses
        for place, part in zip(self._heard.split(sizes), parts, strict=True):
            place.copy_(part, non_blocking=True)


def _nothing(heard: torch.Tensor) -> bool:
    return False


#: What multiplies, and by what: its refusals. Bounded, for addresses may never come again.
_sites: dict[Any, Refusals] = {}
MOST_SITES = 4096


def of_site(key: Any) -> Refusals:
    """The refusals of products that are known by ``key``."""
    found = _sites.get(key)
    if found is None:
        if len(_sites) >= MOST_SITES:
            _sites.clear()
        found = _sites[key] = Refusals()
    return found
