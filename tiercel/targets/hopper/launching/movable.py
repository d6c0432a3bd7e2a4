"""Ready launches for arrays that lie elsewhere in each call.

To prepare a product by a scheme takes 0.3 to 0.6 ms of Python: plans, fourteen tensor maps, five
arguments. Nothing of that depends on addresses but the addresses, which are replaced here.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

from tiercel.errors import TiercelValueError
from tiercel.targets.hopper.launching.launch import Launch
from tiercel.targets.hopper.launching.tensor_map import move_tensor_maps

if TYPE_CHECKING:
    import torch


class Extent(NamedTuple):
    """Bytes of memory that an array touches."""

    address: int
    size: int

    def holds(self, address: int) -> bool:
        return self.address <= address < self.address + self.size


def extent_of(array: torch.Tensor) -> Extent:
    """From its first to its last element, strides not being negative."""
    last = sum((n - 1) * step for n, step in zip(array.shape, array.stride(), strict=True))
    return Extent(array.data_ptr(), (last + 1) * array.element_size() if array.numel() else 0)


@dataclass(frozen=True, eq=False)
class Ready:
    """Launches of one product, and how to move them to other arrays.

    ``choice``: what was chosen on the way that later calls need.
    """

    launch: Any
    movable: Movable
    choice: Any = None


class Movable:
    """The addresses in some launches' arguments that point into some arrays.

    What points elsewhere stays. ``lock``: to be held from ``to`` until the launches are enqueued.
    """

    def __init__(self, launches: Iterable[Launch], arrays: Sequence[Extent]) -> None:
        self.lock = threading.Lock()
        self._arrays = list(arrays)
        self._at: list[int | None] = [x.address for x in arrays]
        self._words: list[list[tuple[Any, int, int]]] = [[] for _ in arrays]
        self._maps: list[list[tuple[Any, int]]] = [[] for _ in arrays]
        # Which array an address belongs to is not known where they overlap.
        self._linked = [
            (i, j, y.address - x.address)
            for (i, x), (j, y) in combinations(enumerate(arrays), 2)
            if x.holds(y.address) or y.holds(x.address)
        ]
        for launch in launches:
            self._add(launch)

    def _add(self, launch: Launch) -> None:
        arguments, places = launch.arguments, launch.places
        if arguments is None:  # nothing is launched
            return
        if places is None:
            raise TiercelValueError("a launch does not say where its argument holds addresses")
        for offset in places.words:
            found = self._find(arguments.words[offset // 8])
            if found is not None:
                self._words[found[0]].append((arguments.words, offset // 8, found[1]))
        for index, described in enumerate(places.maps):
            found = self._find(described.address)
            if found is not None:
                self._maps[found[0]].append((arguments.tensor_map(index), found[1]))

    def _find(self, address: int) -> tuple[int, int] | None:
        """Which array an address points into, and how many bytes behind its beginning."""
        for i, array in enumerate(self._arrays):
            if array.holds(address):
                return i, address - array.address
        return None

    def reaches(self, addresses: list[int]) -> bool:
        """Whether arrays that overlapped at first do so in the same way."""
        linked = self._linked
        if not linked or addresses == self._at:
            return True
        return all(addresses[j] - addresses[i] == apart for i, j, apart in linked)

    def to(self, addresses: list[int]) -> None:
        """Let the arrays begin at these addresses from now on."""
        if addresses == self._at:
            return
        for i, address in enumerate(addresses):
            if address == self._at[i]:
                continue
            self._at[i] = None  # until all of it is moved
            for words, index, offset in self._words[i]:
                words[index] = address + offset
            move_tensor_maps(self._maps[i], address)
            self._at[i] = address
