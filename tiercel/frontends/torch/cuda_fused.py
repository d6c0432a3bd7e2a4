"""Weights packed for the scheme inside the Hopper kernel, and the guard around that kernel.

The kernel itself notices what does not fit into float16 planes. What it cannot notice is judged
before, on the device as well (``targets/gpu/verdict.py``): rows or parts of K of very different
scale, A too small for float16, and a weight that has changed since it was packed. Where any of this
speaks against the scheme, the classical kernel replaces the result, from the weight as it is now.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from tiercel.errors import TiercelValueError
from tiercel.frontends.torch.cuda_machine import capturing
from tiercel.frontends.torch.cuda_packed import Packed
from tiercel.lower.accumulator import Cost, accumulate
from tiercel.lower.program import lower
from tiercel.lower.recipe import Guard
from tiercel.schemes import get

#: Least mean magnitude of 128 elements of A: what float16 rounds to multiples of 2⁻²⁴.
FLOOR = {torch.bfloat16: 2.0**-13, torch.float16: 0.0}

#: Calls of a weight that are left to torch after one whose data were refused: such a call computes
#: the product twice, and its successors' data are likely to be like it.
REST = 256

#: Launches that a weight keeps ready. Building one takes 0.5 ms of Python; the allocator gives a
#: model's layers the same addresses again in every step.
MOST_READY = 64


Launches = tuple[Callable[[int], None], ...]


@dataclass(frozen=True, eq=False)
class Static:
    """What is kept of a weight b (K, N): planes, and what the guard has to know.

    ``operand``: the planes, as the kernel's target packs them. ``record``: extremes of b's
    segments; ``samples``: places and values of some elements; ``limits``: the guard's.
    """

    b: torch.Tensor
    operand: Any
    record: torch.Tensor
    samples: tuple[torch.Tensor, torch.Tensor]
    limits: Guard

    @property
    def nbytes(self) -> int:
        kept = (self.record, *self.samples)
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
        from tiercel.targets.gpu import verdict

        static = self.static
        launches, memory = self._launches(a, out)
        limits = replace(static.limits, limit=math.inf) if any_scale else static.limits
        verdict.judge(
            memory.flags, a, static.record, static.b, static.samples, limits, FLOOR[a.dtype]
        )  # fmt: skip
        stream = torch.cuda.current_stream(a.device).cuda_stream
        for launch in launches:
            launch(stream)
        self._watch(memory.flags)

    def _launches(self, a: torch.Tensor, out: torch.Tensor) -> tuple[Launches, Any]:
        """The launches of a call, and its ``Workspace``: torch's memory, for this call only.

        A launch is found by all its addresses, the workspace's included.
        """
        from tiercel.targets.hopper.fused_product import Workspace, prepare

        shape = (a.shape, a.stride())
        memory = place = None
        if shape in self._sizes:
            planes, scratch, words = self._sizes[shape]
            memory = Workspace(
                a.new_empty(planes, dtype=torch.float16),
                a.new_empty(scratch, dtype=torch.float16),
                a.new_zeros(words, dtype=torch.int32),  # the first is the guard's flag
            )
            place = (shape, a.data_ptr(), out.data_ptr(), *(x.data_ptr() for x in memory))
            if place in self._ready:
                return self._ready[place], memory
        made = prepare(a, self.static.operand, out, memory=memory)
        if memory is None:
            flags = next(x for x in made.kept if x.data_ptr() == made.flag)
            memory = Workspace(*made.workspace, flags)
            self._sizes[shape] = tuple(x.numel() for x in memory)
        launches: Launches = (made.multiply.run, made.fallback.run)
        if made.combine is not None:
            launches = (made.combine.launch, *launches)
        if place is not None:
            if len(self._ready) >= MOST_READY:
                self._ready.clear()
            self._ready[place] = launches
        return launches, memory

    def _watch(self, flags: torch.Tensor) -> None:
        """Let the host see, at some later time, whether the device has refused the data."""
        if capturing():
            return
        if self._refused is None:
            self._refused = torch.zeros(1, dtype=flags.dtype, pin_memory=True)
        self._refused.copy_(flags[:1], non_blocking=True)


def pack(b: torch.Tensor, algorithm: str) -> Packed:
    """Planes of b (K, N) for one level of Winograd's scheme; without any where b forbids it.

    Waits for the device.
    """
    from tiercel.targets.gpu import guard, verdict
    from tiercel.targets.hopper.packed import pack as combine

    scheme = get("winograd")
    try:
        # One register slot fits beside the accumulator of a 128 × 256 tile.
        operand = combine(b, accumulate(scheme, cost=Cost(registers=1)))
    except TiercelValueError:  # values that are not finite, an address that TMA cannot read
        return Packed(algorithm, None, 0)
    limits = guard.limits(lower(scheme), str(b.dtype).removeprefix("torch."), len(b))
    record = verdict.record_of(b, along_rows=False)
    static = Static(b, operand, record, verdict.samples_of(b), limits)
    return Packed(algorithm, FusedWeight(static), static.nbytes, "fused")
