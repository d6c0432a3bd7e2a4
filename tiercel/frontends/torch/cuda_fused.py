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
from functools import cache, cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any

import torch

from tiercel.errors import TiercelValueError
from tiercel.frontends.torch import cuda_shared
from tiercel.frontends.torch.cuda_machine import raw_stream
from tiercel.frontends.torch.cuda_packed import Packed
from tiercel.frontends.torch.cuda_shared import Planes
from tiercel.frontends.torch.refusals import Refusals
from tiercel.lower.accumulator import AccumulatorProgram, accumulate
from tiercel.lower.accumulator.combining import Combining
from tiercel.lower.program import lower
from tiercel.schemes import get
from tiercel.targets.hopper import driver
from tiercel.targets.hopper.workspace import Layout

if TYPE_CHECKING:
    from tiercel.targets.hopper.movable import Ready
    from tiercel.targets.hopper.verdict import Judge

#: Least mean magnitude of 128 elements: what float16 rounds to multiples of 2⁻²⁴.
FLOOR = {torch.bfloat16: 2.0**-13, torch.float16: 0.0}

#: Launches that are kept ready, each for one shape.
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
        self._ready: dict[Any, Ready] = {}
        self._ready_with_planes: dict[Any, Ready] = {}
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
        stream = raw_stream(a.get_device())
        operands = (a, out) if b is None else (a, out, b)
        kind = (
            a.shape, a.stride(), out.shape, out.stride(), b if b is None else (b.shape, b.stride()),
            any_scale, driver.most_multiprocessors,
        )  # fmt: skip
        layout = self._layouts.get(kind)
        if layout is None:
            made = self._prepared(operands, any_scale)
            self._layouts[kind] = Layout.of(made.workspace)
            made.run(stream)
            self._keep(self._ready, kind, made, operands)
            self.tell(lambda: made.workspace.flags)
            return
        shares = tracked and b is None
        planes = cuda_shared.find(a, self) if shares else None
        if planes is None:
            memory = layout.allocate(a)
            addresses = [x.data_ptr() for x in operands] + layout.addresses(memory)
            ready = self._ready.get(kind)
            if ready is None or not ready.movable.reaches(addresses):
                made = self._prepared(operands, any_scale, layout.arrays(memory))
                ready = self._keep(self._ready, kind, made, operands)
            with ready.movable.lock:
                ready.movable.to(addresses)
                layout.clear_flags(memory, stream)
                ready.launch.run_cleared(stream)
            if shares:
                cuda_shared.keep(a, self, layout, memory)
            self.tell(partial(layout.array, memory, -1))
        else:
            self._with_planes(planes, kind, operands, any_scale, layout.without_planes, stream)
            self.tell(lambda: planes.array(-1))

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

    def _with_planes(
        self, planes: Planes, kind: Any, operands: tuple[torch.Tensor, ...], any_scale: bool,
        layout: Layout, stream: int,
    ) -> None:  # fmt: skip
        """The product where another one of a has made the planes, and the flags.

        The kernel is the one that reads planes which are there; only its verdict comes before.
        """
        memory = layout.allocate(operands[0])
        ready = self._ready_with_planes.get(kind)
        if ready is None:
            arrays = layout.arrays(memory)
            arrays[0], arrays[-1] = planes.array(0), planes.array(-1)
            made = self._prepared(operands, any_scale, arrays, Combining("before"))
            ready = self._keep(self._ready_with_planes, kind, made, operands)
        _, *own, _ = layout.addresses(memory)
        first, *_, flags = planes.layout.addresses(planes.memory)
        launch = ready.launch
        with ready.movable.lock:
            ready.movable.to([*(x.data_ptr() for x in operands), first, *own, flags])
            for step in (launch.before[-1], launch.multiply, *launch.after):
                step.run(stream)

    def _keep(
        self, kept: dict[Any, Ready], kind: Any, made: Any, operands: tuple[torch.Tensor, ...]
    ) -> Ready:
        """Keep launches for later calls with operands of the same sizes and strides."""
        from tiercel.targets.hopper.movable import Movable, Ready, extent_of

        arrays = [extent_of(x) for x in (*operands, *made.workspace)]
        movable = Movable((*made.before, made.multiply, *made.after), arrays)
        if len(kept) >= MOST_READY:
            kept.clear()
        kept[kind] = ready = Ready(made.addresses_only(), movable)
        return ready

    def _prepared(
        self,
        operands: tuple[torch.Tensor, ...],
        any_scale: bool,
        memory: list[torch.Tensor] | None = None,
        combining: Any = None,
    ) -> Any:
        from tiercel.targets.hopper.fused_product import Workspace, prepare

        a, out, *b = operands
        judge = self._judge(any_scale)
        space = None if memory is None else Workspace(*memory)
        more = {"judge": judge, "memory": space, "combining": combining}
        if not b:
            # With kernels of their own for the planes, the verdict and the fallback 8192 x 14336 x
            # 4096 takes 1.32 ms, by the one that does it all 1.30.
            more["single"] = combining is None
            return prepare(a, self.static.operand, out, **more)
        return prepare(a, b[0], out, program=self._program, **more)

    def tell(self, flags: Callable[[], torch.Tensor]) -> None:
        """Let the host hear of a product by its flags, now and then."""
        if self.refusals.due():
            self.refusals.tell(lambda heard: bool(heard.item()), flags()[:1])


@cache
def _kernel_with_epilogue() -> Callable[..., dict[str, torch.Tensor]]:
    from tiercel.targets.hopper.fused_epilogue import fused_epilogue

    return fused_epilogue


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
