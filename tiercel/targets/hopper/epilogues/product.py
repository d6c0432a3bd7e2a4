"""A product with a traced epilogue: one call, one kernel launch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tiercel.errors import TiercelValueError
from tiercel.lower.epilogue import Epilogue
from tiercel.targets.hopper.config import Tile
from tiercel.targets.hopper.epilogues.arrivals import arrivals
from tiercel.targets.hopper.epilogues.filled import Filled, kinds_of, without_numbers
from tiercel.targets.hopper.epilogues.plan import EpiloguePlan, finished
from tiercel.targets.hopper.epilogues.plan import plan as plan_of
from tiercel.targets.hopper.launching.keys import kind_of
from tiercel.targets.hopper.launching.launch import remember, run
from tiercel.targets.hopper.launching.movable import Movable, Ready, extent_of
from tiercel.targets.hopper.operands.operand import of_tensor
from tiercel.targets.hopper.products.checks import check, check_devices

if TYPE_CHECKING:
    import torch

_plans: dict[Any, tuple[EpiloguePlan, Filled]] = {}
_ready: dict[Any, Ready] = {}


def gemm_epilogue(
    a: torch.Tensor,
    b: torch.Tensor,
    epilogue: Epilogue,
    operands: Mapping[str, torch.Tensor | float],
    *,
    alpha: float = 1.0,
    config: Tile | None = None,
    out: torch.Tensor | None = None,
    stream: int | None = None,
) -> dict[str, torch.Tensor]:
    """Every output of ``epilogue(alpha · A·B, **operands)``, by name, from one kernel.

    ``a`` and ``b`` as in ``gemm``. Outputs of tiles have a's dtype and are row-major. Reductions
    are float32; those of rows are finished in the kernel, what is left of those of columns and of
    whole matrices is summed by torch. ``out``: row-major memory for the first tile. ``stream``: a
    raw CUDA stream, the device's current one by default. Raises :class:`TiercelValueError` where
    operands do not fit, or the product is empty.
    """
    import torch

    operands = {x: y if isinstance(y, torch.Tensor) else float(y) for x, y in operands.items()}
    key = (
        kinds_of(operands), kind_of(a), kind_of(b), None if out is None else kind_of(out), alpha,
        config, epilogue,
    )  # fmt: skip
    ready = _ready.get(key)
    if ready is not None:
        plan, filled = ready.choice
    else:
        plan, filled = _planned(key, a, b, epilogue, operands, config)
    made = filled.allocate(a, out)
    arrays = [a, b, *made.values(), *(x for x in operands.values() if not isinstance(x, float))]
    device, counters = a.get_device(), 0
    if plan.results:
        if stream is None:
            stream = int(torch._C._cuda_getCurrentRawStream(device))
        arrays.append(arrivals(device, stream, plan.arrivals))
        counters = arrays[-1].data_ptr()
    addresses = [x.data_ptr() for x in arrays]
    if ready is None or not ready.movable.reaches(addresses):
        matrices = of_tensor(a, "a"), of_tensor(b, "b")
        work = plan.launch(*matrices, made, operands, counters, alpha, device)
        movable = Movable(work.launches, [extent_of(x) for x in arrays])
        ready = remember(_ready, key, Ready(work, movable, (plan, filled)))
    with ready.movable.lock:
        ready.movable.to(addresses)
        run(ready.launch, a, stream)
    if not plan.partials:
        return made
    found = {name: made[name] for name in plan.outputs}
    return found | {x.name: finished(x, made) for x in plan.instance.partials}


def _planned(
    key: tuple[Any, ...],
    a: torch.Tensor,
    b: torch.Tensor,
    epilogue: Epilogue,
    operands: Mapping[str, torch.Tensor | float],
    tile: Tile | None,
) -> tuple[EpiloguePlan, Filled]:
    """What calls with the same key have in common, and those with other numbers."""
    key = without_numbers(key[0]), *key[1:]
    known = _plans.get(key)
    if known is not None:
        return known
    tensors = {name: x for name, x in operands.items() if not isinstance(x, (int, float))}
    check_devices({"a": a, "b": b, **tensors})
    left, right = of_tensor(a, "a"), of_tensor(b, "b")
    check(left, right, None, None)
    batches = max(x.shape[0] if len(x.shape) == 3 else 1 for x in (a, b))
    lead = (batches,) if max(len(a.shape), len(b.shape)) == 3 else ()
    if 0 in (left.rows, right.columns, batches):
        raise TiercelValueError(
            f"the product is {batches} times {left.rows}x{right.columns}; an epilogue needs more"
        )
    plan = plan_of(left, right, lead, epilogue, operands, tile, a.get_device())
    return remember(_plans, key, (plan, Filled.by(plan)))
