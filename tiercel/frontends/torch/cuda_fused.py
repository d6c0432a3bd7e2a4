"""Products by the scheme inside the Hopper kernel, with packed weights or without, and its guard.

The kernel itself notices what does not fit into float16 planes. What it cannot notice is judged on
the device as well (``targets/hopper/verdict.py``): rows or parts of K of very different scale,
A too small for float16, and a weight that has changed since it was packed. Where any of this
speaks against the scheme, the classical kernel replaces the result, from the weight as it is now.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch

from tiercel.errors import TiercelValueError
from tiercel.frontends.torch import cuda_shared
from tiercel.frontends.torch.cuda_machine import capturing
from tiercel.frontends.torch.cuda_packed import Packed
from tiercel.lower.accumulator import AccumulatorProgram, accumulate
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
    """A static weight, its ready launches, and how its products fared.

    Without an operand, any of one length: then both sides are combined by ``program`` in each call.
    """

    def __init__(self, static: Static, program: AccumulatorProgram | None = None) -> None:
        self.static, self._program = static, program
        self._sizes: dict[Any, tuple[int, ...]] = {}
        self._ready: dict[Any, Any] = {}
        self._alone: set[Any] = set()
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
        stream = torch.cuda.current_stream(a.device).cuda_stream
        tracked = tracked and b is None
        program = self.static.operand.lowered.program if b is None else self._program
        combined = cuda_shared.find(a, self, program) if tracked else None
        launch, memory = self._launch(a, out, any_scale, combined, b)
        if combined is not None and memory.flags is combined.flags:
            for step in (launch.before[-1], launch.multiply, *launch.after):
                step.run(stream)
        else:
            launch.run_cleared(stream)
            if tracked and _is_combined_before(launch):
                cuda_shared.keep(a, self, program, memory)
        self._watch(memory.flags)

    def _launch(
        self,
        a: torch.Tensor,
        out: torch.Tensor,
        any_scale: bool,
        combined: Any = None,
        b: torch.Tensor | None = None,
    ) -> tuple[Any, Any]:
        """The launches of a call, and its ``Workspace``: torch's memory, for this call only.

        They are found by all their addresses, the workspace's included. Planes of A and flags are
        those of ``combined``, which another product has made, where they fit.
        """
        from tiercel.targets.hopper import driver
        from tiercel.targets.hopper.fused_product import prepare

        right = () if b is None else (b,)
        sizes = ((x.shape, x.stride()) for x in (a, *right))
        shape = (*sizes, any_scale, driver.most_multiprocessors)
        memory = place = None
        if shape in self._sizes:
            memory = self._memory(a, shape, combined)
            addresses = (x.data_ptr() for x in (a, *right, out, *memory))
            place = (shape, *addresses)
            if place in self._ready:
                return self._ready[place], memory
        judge = self.static.judge
        if any_scale:
            judge = replace(judge, limits=replace(judge.limits, limit=math.inf))
        if b is None:
            made = prepare(a, self.static.operand, out, judge=judge, memory=memory)
        else:
            made = prepare(a, b, out, program=self._program, judge=judge, memory=memory)
        if memory is None:
            memory = made.workspace
            self._sizes[shape] = tuple(x.numel() for x in memory)
            if not _is_combined_before(made):
                self._alone.add(shape)
        if place is not None:
            if len(self._ready) >= MOST_READY:
                self._ready.clear()
            self._ready[place] = made.addresses_only()  # the allocator must have them back
        return made, memory

    def _memory(self, a: torch.Tensor, shape: Any, combined: Any) -> Any:
        from tiercel.targets.hopper.fused_product import Workspace

        sizes = self._sizes[shape]
        shares = combined is not None and shape not in self._alone
        if shares and (combined.a_planes.numel(), combined.flags.numel()) == (sizes[0], sizes[-1]):
            others = (a.new_empty(count, dtype=torch.float16) for count in sizes[1:-1])
            return Workspace(combined.a_planes, *others, combined.flags)
        halves = (a.new_empty(count, dtype=torch.float16) for count in sizes[:-1])
        return Workspace(*halves, a.new_zeros(sizes[-1], dtype=torch.int32))

    def _watch(self, flags: torch.Tensor) -> None:
        """Let the host see, at some later time, whether the device has refused the data."""
        if capturing():
            return
        if self._refused is None:
            self._refused = torch.zeros(1, dtype=flags.dtype, pin_memory=True)
        self._refused.copy_(flags[:1], non_blocking=True)


def _is_combined_before(launch: Any) -> bool:
    """Whether planes of A are made by a launch of its own, which the verdict follows."""
    return len(launch.before) > 1


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
