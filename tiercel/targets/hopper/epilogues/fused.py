"""A product by a scheme with a traced epilogue: both inside one kernel.

Each block of the output goes through the epilogue while later products are multiplied
(``kernels/pending.cuh``). Until then it is kept as float16 with a power of two for each thread,
three bits more than a bfloat16 product has that is rounded before its epilogue.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary, ref

from tiercel.lower.accumulator.combining import Combining
from tiercel.lower.epilogue import Epilogue
from tiercel.targets.hopper.epilogues.arrivals import arrivals
from tiercel.targets.hopper.epilogues.filled import kinds_of, without_numbers
from tiercel.targets.hopper.epilogues.fused_plan import FusedEpilogue, Operands, fused_plan
from tiercel.targets.hopper.epilogues.plan import finished
from tiercel.targets.hopper.fused.packed import PackedOperand
from tiercel.targets.hopper.fused.product import prepare
from tiercel.targets.hopper.fused.verdict import Judge
from tiercel.targets.hopper.fused.workspace import Layout
from tiercel.targets.hopper.launching import occupancy
from tiercel.targets.hopper.launching.driver import clear_words
from tiercel.targets.hopper.launching.keys import kind_of
from tiercel.targets.hopper.launching.launch import MOST_READY, on_device
from tiercel.targets.hopper.launching.movable import Movable, Ready, extent_of

if TYPE_CHECKING:
    import torch


class Kept(NamedTuple):
    """What is known of products with one packed operand, or with any that is not."""

    plans: dict[Any, FusedEpilogue]
    ready: dict[Any, Ready]


_of_any = Kept({}, {})
_of_packed: WeakKeyDictionary[PackedOperand, Kept] = WeakKeyDictionary()


def kept_of(b: PackedOperand | torch.Tensor) -> Kept:
    """That of b: it ends with a packed operand, which it does not keep."""
    if not isinstance(b, PackedOperand):
        return _of_any
    kept = _of_packed.get(b)
    if kept is None:
        kept = _of_packed[b] = Kept({}, {})
    return kept


def fused_epilogue(
    a: torch.Tensor,
    b: PackedOperand | torch.Tensor,
    epilogue: Epilogue,
    operands: Operands,
    *,
    alpha: float = 1.0,
    judge: Judge | None = None,
    combining: Combining | None = None,
    out: torch.Tensor | None = None,
    stream: int | None = None,
    told: Callable[[Callable[[], torch.Tensor]], None] | None = None,
) -> dict[str, torch.Tensor]:
    """Every output of ``epilogue(alpha · A·B, **operands)``, as ``gemm_epilogue`` gives them.

    ``a`` (M, K) of 16 bits, ``b`` (K, N) of its dtype; without planes the product is classical,
    and the epilogue beside later products all the same. ``judge`` and ``combining`` as in
    ``prepare``. One launch where A is combined inside, else two. ``out``: row-major memory for the
    first tile, whose rows start at multiples of 16 bytes. ``told`` gets a function of words of the
    device, the first of which is 1 if the product was computed classically after all.

    Raises :class:`TiercelValueError` where sizes do not divide into the scheme's blocks, or these
    not into groups of 16 rows that an epilogue reduces.
    """
    import torch

    operands = {x: y if isinstance(y, torch.Tensor) else float(y) for x, y in operands.items()}
    packed, kept = isinstance(b, PackedOperand), kept_of(b)
    key = (
        kinds_of(operands), None if isinstance(b, PackedOperand) else kind_of(b), kind_of(a),
        None if out is None else kind_of(out), alpha, epilogue, combining,
        None if judge is None else ref(judge), occupancy.most_multiprocessors,
    )  # fmt: skip
    ready = kept.ready.get(key)
    if ready is not None:
        planned, layout = ready.choice
    else:
        planned, layout = _planned(kept.plans, key, a, b, epilogue, operands), None
    device, counted = a.get_device(), 0
    if stream is None:
        stream = int(torch._C._cuda_getCurrentRawStream(device))
    arrays = planned.filled.allocate(a, out)
    touched = [a, *arrays.values(), *(x for x in operands.values() if not isinstance(x, float))]
    if planned.counted:
        touched.append(arrivals(device, stream, planned.counted))
        counted = touched[-1].data_ptr()
    if not packed:
        touched.append(b)
    places = [x.data_ptr() for x in touched]
    if layout is not None:
        memory = layout.allocate(a)
        places += layout.addresses(memory)
        flags = partial(layout.array, memory, -1)
    if ready is None or layout is None or not ready.movable.reaches(places):
        work = prepare(
            a, b, planned.ending(a, arrays, operands, counted, alpha), program=planned.program,
            alpha=alpha, judge=judge, combining=combining if packed else Combining(),
        )  # fmt: skip
        layout = Layout.of(work.workspace)
        extents = [extent_of(x) for x in (*touched, *work.workspace)]
        places = [x.address for x in extents]
        movable = Movable((*work.before, work.multiply), extents)
        ready = Ready(work.addresses_only(), movable, (planned, layout))
        _remember(kept.ready, key, ready)
        flags = partial(getattr, work.workspace, "flags")
    with on_device(device), ready.movable.lock:
        ready.movable.to(places)
        clear_words(places[-1], layout.counts[-1], stream)
        ready.launch.run_cleared(stream)
    if told is not None:
        told(flags)
    found = {name: arrays[name] for name in planned.arrays.outputs}
    return found | {x.name: finished(x, arrays) for x in planned.arrays.instance.partials}


def _remember(kept: dict[Any, Any], key: Any, made: Any) -> None:
    if len(kept) >= MOST_READY:
        kept.clear()
    kept[key] = made


def _planned(
    kept: dict[Any, FusedEpilogue],
    key: tuple[Any, ...],
    a: torch.Tensor,
    b: PackedOperand | torch.Tensor,
    epilogue: Epilogue,
    operands: Operands,
) -> FusedEpilogue:
    """What calls with the same key have in common, and those with other numbers."""
    key = without_numbers(key[0]), *key[1:]
    known = kept.get(key)
    if known is None:
        known = fused_plan(a, b, epilogue, operands)
        _remember(kept, key, known)
    return known
