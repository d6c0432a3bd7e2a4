"""A product with a packed right operand and a traced epilogue: both in the scheme's own kernel."""

from __future__ import annotations

from typing import Any

import torch

from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.frontends.torch.cuda import engine
from tiercel.frontends.torch.cuda.machine import capturing, machine_for
from tiercel.frontends.torch.engine import Request
from tiercel.frontends.torch.packed import PackedTensor
from tiercel.lower.epilogue.graph import Reduction
from tiercel.options import Options
from tiercel.planner.gpu import GpuPlan
from tiercel.planner.gpu.epilogue import gains
from tiercel.targets.hopper.launching.kernel import LaunchRefused

_ran: set[Any] = set()
MOST_RAN = 8192


def by_scheme(
    given: Any, a: torch.Tensor, b: PackedTensor, options: Options
) -> dict[str, torch.Tensor] | None:
    """The outputs of ``given`` for a · b from one launch, where the scheme that b is packed for is
    faster than the classical kernel; None where not, and where it cannot run.

    ``a`` (M, K) is an ordinary matrix that autograd does not follow. Raises ``TiercelValueError``
    if b was changed after packing.
    """
    source, form = b.fresh(), b.form
    if form.panels is None or form.kind != "fused" or a.dim() != 2 or a.dtype is not b.dtype:
        return None
    if a.shape[1] != source.shape[0]:
        return None
    plain = options.with_epilogue(None)
    plan = engine.plan(Request(a, source, None, plain, form))
    if not isinstance(plan, GpuPlan) or plan.chosen.variant.kind != "fused" or plan.chosen.fringe:
        return None
    reduced = [x.kind for x in given.epilogue.outputs.values() if isinstance(x, Reduction)]
    if not gains(plan, machine_for(a.get_device(), a.dtype), reduced):
        return None
    seen = given.epilogue, id(form), a.shape, a.stride()
    weight = form.panels
    if (capturing() and seen not in _ran) or not weight.refusals.allows():
        return None
    try:
        made = weight.multiply_and_end(a, None, given.epilogue, given.operands)
    # Blocks that the epilogue does not divide into; too few multiprocessors.
    except (TiercelValueError, TiercelTypeError, LaunchRefused):
        return None
    if len(_ran) >= MOST_RAN:
        _ran.clear()
    _ran.add(seen)
    return made
