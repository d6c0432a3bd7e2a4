"""Products inside the Hopper kernel, repeated: launches that are moved to each call's arrays.

A product's launches depend on sizes and strides; addresses are all that a call brings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from tiercel.frontends.torch.cuda import shared
from tiercel.frontends.torch.cuda.machine import raw_stream
from tiercel.frontends.torch.cuda.refusals import Refusals
from tiercel.frontends.torch.cuda.shared import Planes
from tiercel.lower.accumulator.combining import Combining
from tiercel.targets.hopper.fused.workspace import FRESH, Layout
from tiercel.targets.hopper.launching import occupancy

if TYPE_CHECKING:
    from tiercel.targets.hopper.fused.launches import FusedLaunch
    from tiercel.targets.hopper.launching.movable import Ready

#: Prepares launches for operands, a workspace or None, and a way of combining or None.
Prepare = Callable[..., "FusedLaunch"]


class Call:
    """Products of operands that lie like the first ones, by one weight.

    ``program``: whose planes of A other weights may read; None: nobody may. ``refusals`` hear of
    verdicts.
    """

    __slots__ = (
        "_layout",
        "_lie",
        "_multiprocessors",
        "_own",
        "_planes",
        "_prepare",
        "_reading",
        "_refusals",
    )

    def __init__(
        self, prepare: Prepare, operands: Sequence[torch.Tensor], program: Any, refusals: Refusals
    ) -> None:
        self._prepare, self._refusals = prepare, refusals
        self._lie = [(x.shape, x.stride()) for x in operands]
        self._planes = None if program is None else (*self._lie[0], operands[0].dtype, program)
        self._multiprocessors: int | None = None
        self._layout: Layout | None = None  # of the workspace
        # Launches that make planes of a, and such that read another product's.
        self._own: Ready | None = None
        self._reading: Ready | None = None

    def run(self, operands: tuple[torch.Tensor, ...], shares: bool) -> None:
        """out = a · b on the current stream. ``operands``: a, out and, where the weight has none,
        b: views of any shape that begin where the matrices do.

        ``shares``: torch counts changes of a, whose planes may then serve several weights.
        """
        a, layout = operands[0], self._layout
        if layout is None or self._multiprocessors != occupancy.most_multiprocessors:
            layout = self._begin(operands)
        stream = raw_stream(a.get_device())
        shares = shares and self._planes is not None
        if shares:
            planes = shared.find(a, self, stream, self._planes)
            if planes is not None:
                self._run_with(planes, operands, layout.without_planes, stream)
                return
        memory = layout.allocate(a)
        arrays = *operands, memory
        addresses = [x.data_ptr() for x in arrays]
        ready = self._own
        if ready is None or not ready.movable.reaches(addresses):
            ready = self._own = self._ready(arrays, layout.arrays(memory), None)
        with ready.movable.lock:
            ready.movable.to(addresses)
            layout.clear_flags(memory, stream)
            ready.launch.run_cleared(stream)
        if shares:
            shared.keep(a, self, stream, self._planes, layout, memory)
        if self._refusals.due():
            self._tell(layout.array(memory, -1))

    def _begin(self, operands: tuple[torch.Tensor, ...]) -> Layout:
        """Find out what the product needs."""
        self._multiprocessors, self._own, self._reading = occupancy.most_multiprocessors, None, None
        made = self._prepare(self._matrices(operands), None, None)
        self._layout = Layout.of(made.workspace)
        return self._layout

    def _run_with(
        self, planes: Planes, operands: tuple[torch.Tensor, ...], layout: Layout, stream: int
    ) -> None:
        """The product where another one of a has made the planes, and the record in its flags."""
        memory = layout.allocate(operands[0])
        if self._reading is None:
            workspace = layout.arrays(memory)
            workspace[0], workspace[-1] = found = planes.array(0), planes.array(-1)
            arrays = *operands, *found, memory
            self._reading = self._ready(arrays, workspace, Combining("before"))
        movable = self._reading.movable
        first, *_, flags = planes.layout.addresses(planes.memory)  # not always of one layout
        with movable.lock:
            movable.to([*(x.data_ptr() for x in operands), first, flags, memory.data_ptr()])
            planes.layout.clear_flags(planes.memory, stream, FRESH)
            self._reading.launch.multiply.run(stream)
        if self._refusals.due():
            self._tell(planes.array(-1))

    def _ready(
        self, arrays: tuple[torch.Tensor, ...], workspace: list[torch.Tensor], combining: Any
    ) -> Ready:
        """Launches for operands and what follows them, in which the workspace lies."""
        from tiercel.targets.hopper.launching.movable import Movable, Ready, extent_of

        matrices = self._matrices(arrays)
        made = self._prepare(matrices, workspace, combining)
        extents = [extent_of(x) for x in (*matrices, *arrays[len(matrices) :])]
        movable = Movable((*made.before, made.multiply), extents)
        return Ready(made.addresses_only(), movable)

    def _matrices(self, operands: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
        return [x.as_strided(*lies) for x, lies in zip(operands, self._lie, strict=False)]

    def _tell(self, flags: torch.Tensor) -> None:
        """Let the host hear of a product by its flags."""
        self._refusals.tell(is_bad, flags[:1])


def is_bad(heard: torch.Tensor) -> bool:
    """Whether data are not for a scheme; 2 says that the next product's gains will do for them."""
    return heard.item() == 1
