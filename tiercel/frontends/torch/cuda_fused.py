"""Weights packed for the scheme inside the Hopper kernel, and the guard around that kernel.

The kernel itself notices what does not fit into float16 planes. What it cannot notice is judged on
the device as well (``targets/hopper/verdict.py``): rows or parts of K of very different scale,
A too small for float16, and a weight that has changed since it was packed. Where any of this
speaks against the scheme, the classical kernel replaces the result, from the weight as it is now.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from tiercel.errors import TiercelValueError
from tiercel.frontends.torch.cuda_machine import capturing
from tiercel.frontends.torch.cuda_packed import Packed
from tiercel.lower.accumulator import Cost, accumulate
from tiercel.lower.program import lower
from tiercel.schemes import get

if TYPE_CHECKING:
    from tiercel.targets.hopper.verdict import Judge

#: Least mean magnitude of 128 elements: what float16 rounds to multiples of 2⁻²⁴.
FLOOR = {torch.bfloat16: 2.0**-13, torch.float16: 0.0}

#: Calls that are left to torch after one whose data were refused: such a call computes the product
#: twice, and its successors' data are likely to be like it.
REST = 256

#: Launches that are kept ready. Building one takes 0.5 ms of Python; the allocator gives a model's
#: layers the same addresses again in every step.
MOST_READY = 64


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
    """A static weight, its ready launches, and how its products fared."""

    def __init__(self, static: Static) -> None:
        self.static = static
        self._sizes: dict[Any, tuple[int, ...]] = {}
        self._ready: dict[Any, Any] = {}
        self._refused: torch.Tensor | None = None
        self._rest = 0

    def allows(self) -> bool:
        """False for ``REST`` calls after a refusal that the host has heard of; waits for nothing.

        With deterministic algorithms nothing is remembered: when the host hears of a refusal is a
        matter of timing.
        """
        if torch.are_deterministic_algorithms_enabled():
            return True
        if self._rest:
            self._rest -= 1
            return False
        if self._refused is not None and self._refused.item():
            self._refused, self._rest = None, REST
            return False
        return True

    def multiply(self, a: torch.Tensor, out: torch.Tensor, *, any_scale: bool = False) -> None:
        """out = a · b on the current stream.

        ``any_scale``: of A, only the size is judged, not whether its parts are of like scale.
        """
        launch, memory = self._launch(a, out, any_scale)
        launch.run_cleared(torch.cuda.current_stream(a.device).cuda_stream)
        self._watch(memory.flags)

    def _launch(self, a: torch.Tensor, out: torch.Tensor, any_scale: bool) -> tuple[Any, Any]:
        """The launches of a call, and its ``Workspace``: torch's memory, for this call only.

        They are found by all their addresses, the workspace's included.
        """
        from tiercel.targets.hopper.fused_product import Workspace, prepare

        shape = (a.shape, a.stride(), any_scale)
        memory = place = None
        if shape in self._sizes:
            *halves, words = self._sizes[shape]
            memory = Workspace(
                *(a.new_empty(count, dtype=torch.float16) for count in halves),
                a.new_zeros(words, dtype=torch.int32),
            )
            addresses = (x.data_ptr() for x in (a, out, *memory))
            place = (shape, *addresses)
            if place in self._ready:
                return self._ready[place], memory
        judge = self.static.judge
        if any_scale:
            judge = replace(judge, limits=replace(judge.limits, limit=math.inf))
        made = prepare(a, self.static.operand, out, judge=judge, memory=memory)
        if memory is None:
            memory = made.workspace
            self._sizes[shape] = tuple(x.numel() for x in memory)
        if place is not None:
            if len(self._ready) >= MOST_READY:
                self._ready.clear()
            self._ready[place] = made
        return made, memory

    def _watch(self, flags: torch.Tensor) -> None:
        """Let the host see, at some later time, whether the device has refused the data."""
        if capturing():
            return
        if self._refused is None:
            self._refused = torch.zeros(1, dtype=flags.dtype, pin_memory=True)
        self._refused.copy_(flags[:1], non_blocking=True)


def pack(b: torch.Tensor, algorithm: str) -> Packed:
    """Planes of b (K, N) for one level of a scheme; without any where b forbids it.

    Waits for the device.
    """
    from tiercel.targets.gpu import guard, verdict
    from tiercel.targets.hopper.packed import pack as combine
    from tiercel.targets.hopper.verdict import Judge

    scheme = get(algorithm)
    try:
        # One register slot fits beside the accumulator of a 128 × 256 tile.
        operand = combine(b, accumulate(scheme, cost=Cost(registers=1)))
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
