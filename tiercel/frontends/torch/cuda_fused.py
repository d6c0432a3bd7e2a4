"""Products by the scheme inside the Hopper kernel, with packed weights or without, and its guard.

The kernel itself notices what does not fit into float16 planes. What it cannot notice is judged on
the device as well (``targets/hopper/verdict.py``): rows or parts of K of very different scale,
A too small for float16, and a weight that has changed since it was packed. Where any of this
speaks against the scheme, the classical kernel replaces the result, from the weight as it is now.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch

from tiercel.errors import TiercelValueError
from tiercel.frontends.torch import cuda_shared
from tiercel.frontends.torch.cuda_machine import raw_stream
from tiercel.frontends.torch.cuda_packed import Packed
from tiercel.frontends.torch.cuda_shared import Planes
from tiercel.frontends.torch.cuda_workspace import Layout
from tiercel.frontends.torch.refusals import Refusals
from tiercel.lower.accumulator import AccumulatorProgram, accumulate
from tiercel.lower.accumulator.combining import Combining
from tiercel.lower.program import lower
from tiercel.schemes import get

if TYPE_CHECKING:
    from tiercel.targets.hopper.verdict import Judge

#: Least mean magnitude of 128 elements: what float16 rounds to multiples of 2⁻²⁴.
FLOOR = {torch.bfloat16: 2.0**-13, torch.float16: 0.0}

#: Launches that are kept ready. Building one takes 0.5 ms of Python; the allocator gives a model's
#: layers the same addresses again in every step.
MOST_READY = 1024


@dataclass(frozen=True, eq=False)
class Static:
    """What is kept of a weight: ``operand``, its planes as the kernel's target packs them."""

    operand: Any
    judge: Judge

    @property
    def nbytes(self) -> int:
        assert self.judge.record is not None, "measured when packed"
        assert self.judge.samples is not None, "taken when packed"
        kept = (self.judge.record, *self.judge.samples)
        return self.operand.bytes + sum(x.numel() * x.element_size() for x in kept)


class FusedWeight:
    """A static weight, its ready launches, and how its products fared.

    Without an operand, any of one length: then both sides are combined by ``program`` in each call.
    """

    def __init__(self, static: Static, program: AccumulatorProgram | None = None) -> None:
        self.static, self._program = static, program
        self._layouts: dict[Any, Layout] = {}
        self._ready: dict[Any, Any] = {}
        self.refusals = Refusals()

    def multiply(
        self,
        a: torch.Tensor,
        out: torch.Tensor,
        *,
        b: torch.Tensor | None = None,
        any_scale: bool = False,
        tracked: bool = False,
    ) -> None:
        """out = a · b on the current stream; ``b`` is the weight where that has an operand.

        ``any_scale``: of A, only the size is judged, not whether its parts are of like scale.
        ``tracked``: torch counts changes of a, whose planes may then serve several weights.
        """
        from tiercel.targets.hopper import driver

        stream = raw_stream(a.get_device())
        operands = (a, out) if b is None else (a, out, b)
        kind = (*((x.shape, x.stride()) for x in operands), any_scale, driver.most_multiprocessors)
        layout = self._layouts.get(kind)
        if layout is None:
            made = self._prepared(a, out, b, any_scale, None)
            self._layouts[kind] = Layout.of(made.workspace)
            made.run(stream)
            self._tell(lambda: made.workspace.flags)
            return
        shares = tracked and b is None
        planes = cuda_shared.find(a, self) if shares else None
        launch, memory, flags = self._launches(kind, operands, layout, planes)
        if planes is not None:
            for step in (launch.before[-1], launch.multiply, *launch.after):
                step.run(stream)
        else:
            layout.clear_flags(memory, stream)
            launch.run_cleared(stream)
            if shares:
                cuda_shared.keep(a, self, layout, memory)
        self._tell(flags)

    def _launches(
        self, kind: Any, operands: tuple[torch.Tensor, ...], layout: Layout, planes: Planes | None
    ) -> tuple[Any, torch.Tensor, Callable[[], torch.Tensor]]:
        """The launches of a call, its memory from torch, and how to get at its flags.

        They are found by the addresses of all that they touch. ``planes``: those that another
        product of a has made, with its flags; then the kernel is the one that reads planes which
        are there, and only its verdict comes before.
        """
        memory = (layout if planes is None else layout.without_planes).allocate(operands[0])
        shared = memory if planes is None else planes.memory
        place = (kind, memory.data_ptr(), shared.data_ptr(), *(x.data_ptr() for x in operands))
        launch = self._ready.get(place)
        if launch is None:
            from tiercel.targets.hopper.fused_product import Workspace

            combining = None
            if planes is None:
                arrays = layout.arrays(memory)
            else:
                arrays, combining = layout.without_planes.arrays(memory), Combining("before")
                arrays[0], arrays[-1] = planes.array(0), planes.array(-1)
            a, out, *b = operands
            any_scale, space = kind[-2], Workspace(*arrays)
            made = self._prepared(a, out, b[0] if b else None, any_scale, space, combining)
            if len(self._ready) >= MOST_READY:
                self._ready.clear()
            launch = self._ready[place] = made.addresses_only()
        owner = layout if planes is None else planes.layout
        return launch, memory, lambda: owner.array(shared, -1)

    def _prepared(
        self,
        a: torch.Tensor,
        out: torch.Tensor,
        b: torch.Tensor | None,
        any_scale: bool,
        memory: Any,
        combining: Any = None,
    ) -> Any:
        from tiercel.targets.hopper.fused_product import prepare

        judge = self.static.judge
        if any_scale:
            judge = replace(judge, limits=replace(judge.limits, limit=math.inf))
        more = {"judge": judge, "memory": memory, "combining": combining}
        if b is None:
            return prepare(a, self.static.operand, out, **more)
        return prepare(a, b, out, program=self._program, **more)

    def _tell(self, flags: Callable[[], torch.Tensor]) -> None:
        if self.refusals.due():
            self.refusals.tell(lambda heard: bool(heard.item()), flags()[:1])


@lru_cache(maxsize=256)
def unpacked(algorithm: str, dtype: torch.dtype, K: int, device: int) -> FusedWeight:
    """Products over ``K`` elements of operands that are both combined in each call."""
    from tiercel.targets.gpu import guard
    from tiercel.targets.hopper.verdict import Judge

    scheme = get(algorithm)
    limits = guard.limits(lower(scheme), str(dtype).removeprefix("torch."), K)
    floors = FLOOR[dtype], FLOOR[dtype]
    return FusedWeight(Static(None, Judge(limits, floors)), accumulate(scheme))


def pack(b: torch.Tensor, algorithm: str) -> Packed:
    """Planes of b (K, N) for one level of a scheme; without any where b forbids it.

    Waits for the device.
    """
    from tiercel.targets.gpu import guard, verdict
    from tiercel.targets.hopper.packed import pack as combine
    from tiercel.targets.hopper.verdict import Judge

    scheme = get(algorithm)
    try:
        operand = combine(b, accumulate(scheme))
    except TiercelValueError:  # values that are not finite, an address that TMA cannot read
        return Packed(algorithm, None, 0)
    judge = Judge(
        guard.limits(lower(scheme), str(b.dtype).removeprefix("torch."), len(b)),
        floors=(FLOOR[b.dtype], 0.0),  # planes of b are scaled
        record=verdict.record_of(b, along_rows=False),
        samples=verdict.samples_of(b),
    )
    static = Static(operand, judge)
    return Packed(algorithm, FusedWeight(static), static.nbytes, "fused")
