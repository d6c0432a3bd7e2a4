"""Products by the scheme inside the Hopper kernel, with packed weights or without, and its guard.

The kernel judges the data (``targets/hopper/fused/verdict.py``): what does not fit into float16
planes, rows or parts of K of very different scale, operands too small for float16, and a weight
that has changed since it was packed. Where any of this speaks against the scheme it multiplies
again, classically, by the weight as it is now.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any

import torch

from tiercel.errors import TiercelValueError
from tiercel.frontends.torch.cuda.call import Call, is_bad
from tiercel.frontends.torch.cuda.machine import capturing
from tiercel.frontends.torch.cuda.packed import Packed
from tiercel.frontends.torch.cuda.refusals import Refusals
from tiercel.frontends.torch.engine import Product
from tiercel.lower.accumulator import AccumulatorProgram, accumulate
from tiercel.lower.program import lower
from tiercel.schemes import get

if TYPE_CHECKING:
    from tiercel.targets.hopper.fused.launches import FusedLaunch
    from tiercel.targets.hopper.fused.verdict import Judge

#: Least mean magnitude of 128 elements: what float16 rounds to multiples of 2⁻²⁴.
FLOOR = {torch.bfloat16: 2.0**-13, torch.float16: 0.0, torch.float32: 0.0}

#: Calls that are kept, each for one shape.
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
    """A static weight, its repeated products, and how they fared.

    Without an operand, any of one length: then both sides are combined by ``program`` in each call.
    """

    def __init__(self, static: Static, program: AccumulatorProgram | None = None) -> None:
        self.static, self._program = static, program
        self._calls: dict[Any, Call] = {}
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
        operands = (a, out) if b is None else (a, out, b)
        self.call(operands, any_scale=any_scale).run(operands, tracked)

    def call(self, operands: tuple[torch.Tensor, ...], *, any_scale: bool = False) -> Call:
        """Products of operands (a, out and, without a static one, b) that lie like these."""
        # Gradients may be small. What an earlier product leaves behind may show in their last bits.
        remembers = _in_backward() and not torch.are_deterministic_algorithms_enabled()
        kind = any_scale, remembers, *((x.shape, x.stride()) for x in operands)
        found = self._calls.get(kind)
        if found is None:
            if len(self._calls) >= MOST_READY:
                self._calls.clear()
            operand, judge = self.static.operand, self._judge(any_scale)
            gains = _gains(operands[0].device) if remembers and not capturing() else None
            prepare = partial(_prepared, operand, self._program, judge, gains)
            shared = None if operand is None else operand.lowered.program
            found = self._calls[kind] = Call(prepare, operands, shared, self.refusals)
        return found

    def multiply_and_end(
        self,
        a: torch.Tensor,
        out: torch.Tensor | None,
        epilogue: Any,
        operands: Any,
        *,
        any_scale: bool = False,
    ) -> dict[str, torch.Tensor]:
        """Outputs of epilogue(a · weight, **operands) by one kernel, before the product is rounded.

        The weight has an operand. ``out``: memory for the first tile.
        """
        return _kernel_with_epilogue()(
            a, self.static.operand, epilogue, operands, judge=self._judge(any_scale), out=out,
            told=self.tell,
        )  # fmt: skip

    def _judge(self, any_scale: bool) -> Judge:
        return self._judge_of_any_scale if any_scale else self.static.judge

    @cached_property
    def _judge_of_any_scale(self) -> Judge:
        judge = self.static.judge
        return replace(judge, limits=replace(judge.limits, limit=math.inf))

    def tell(self, flags: Callable[[], torch.Tensor]) -> None:
        """Let the host hear of a product by its flags, now and then."""
        if self.refusals.due():
            self.refusals.tell(is_bad, flags()[:1])


def _prepared(
    operand: Any,
    program: AccumulatorProgram | None,
    judge: Judge,
    gains: torch.Tensor | None,
    operands: list[torch.Tensor],
    memory: list[torch.Tensor] | None,
    combining: Any,
) -> FusedLaunch:
    """See ``cuda_call.Prepare``; ``operand``: packed, or None."""
    from tiercel.targets.hopper.fused.product import prepare
    from tiercel.targets.hopper.fused.workspace import Workspace

    a, out, *b = operands
    return prepare(
        a, b[0] if b else operand, out, program=program, judge=judge, combining=combining,
        memory=None if memory is None else Workspace(*memory), gains=gains,
    )  # fmt: skip


def _in_backward() -> bool:
    """Whether autograd asks for this product."""
    return torch._C._current_graph_task_id() != -1


def _gains(device: torch.device) -> torch.Tensor:
    from tiercel.targets.hopper.fused.gains import gains

    return gains(device)


@cache
def _kernel_with_epilogue() -> Callable[..., dict[str, torch.Tensor]]:
    from tiercel.targets.hopper.epilogues.fused import fused_epilogue

    return fused_epilogue


@lru_cache(maxsize=MOST_READY)
def unpacked(algorithm: str, product: Product, device: int) -> FusedWeight:
    """Products of these sizes and layouts whose operands are both combined in each call.

    Others than these are not concerned when their data are refused: gradients, for example.
    """
    from tiercel.targets.gpu import guard
    from tiercel.targets.hopper.fused.verdict import Judge

    scheme, dtype = get(algorithm), product.dtype
    limits = guard.limits(lower(scheme), str(dtype).removeprefix("torch."), product.K)
    floors = FLOOR[dtype], FLOOR[dtype]
    return FusedWeight(Static(None, Judge(limits, floors)), accumulate(scheme))


def pack(b: torch.Tensor, algorithm: str) -> Packed:
    """Planes of b (K, N) for one level of a scheme; without any where b forbids it.

    Waits for the device.
    """
    from tiercel.targets.gpu import guard, verdict
    from tiercel.targets.hopper.fused.packed import pack as combine
    from tiercel.targets.hopper.fused.verdict import Judge

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
