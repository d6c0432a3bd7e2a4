"""A product with a traced epilogue: one call, one kernel launch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tiercel.errors import TiercelValueError
from tiercel.lower.epilogue import Epilogue
from tiercel.targets.hopper.arrivals import arrivals
from tiercel.targets.hopper.config import Tile
from tiercel.targets.hopper.epilogue_plan import EpiloguePlan, finished, plan
from tiercel.targets.hopper.launch import Launch, remember
from tiercel.targets.hopper.operand import of_tensor
from tiercel.targets.hopper.product import check, check_devices

if TYPE_CHECKING:
    import torch

_plans: dict[Any, EpiloguePlan] = {}
_ready: dict[Any, Launch] = {}


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

    device = a.get_device()
    operands = {x: y if isinstance(y, torch.Tensor) else float(y) for x, y in operands.items()}
    # What does not depend on addresses but for their alignment is worked out once: binding an
    # epilogue takes 0.5 ms.
    key = (
        _kind(a), _kind(b), _kind(out), alpha, config, epilogue, tuple(operands),
        *(_kind(x) for x in operands.values()),
    )  # fmt: skip
    planned = _plans.get(key)
    if planned is None:
        planned = remember(_plans, key, _planned(a, b, epilogue, operands, config))
    made = {
        name: torch.empty(shape, dtype=getattr(torch, dtype), device=a.device)
        for kind in (planned.outputs, planned.partials, planned.results)
        for name, (shape, dtype) in kind.items()
        if out is None or name != next(iter(planned.outputs), None)
    }
    if out is not None:
        made[next(iter(planned.outputs))] = out
    if stream is None:
        stream = int(torch._C._cuda_getCurrentRawStream(device))
    counters = 0
    if planned.arrivals:
        counters = arrivals(device, stream, planned.arrivals).data_ptr()
    tensors = [a, b, *made.values(), *operands.values()]
    addresses = tuple(x if isinstance(x, float) else x.data_ptr() for x in tensors)
    known = (planned, counters, *addresses)
    work = _ready.get(known)
    if work is None:
        matrices = of_tensor(a, "a"), of_tensor(b, "b")
        work = planned.launch(*matrices, made, operands, counters, alpha, device)
        remember(_ready, known, work)
    if torch._C._cuda_getDevice() == device:
        work.run(stream)
    else:
        with torch.cuda.device(device):
            work.run(stream)
    if not planned.partials:
        return made
    found = {name: made[name] for name in planned.outputs}
    return found | {x.name: finished(x, made) for x in planned.instance.partials}


def _planned(
    a: torch.Tensor,
    b: torch.Tensor,
    epilogue: Epilogue,
    operands: Mapping[str, torch.Tensor | float],
    tile: Tile | None,
) -> EpiloguePlan:
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
    return plan(left, right, lead, epilogue, operands, tile, a.get_device())


def _kind(x: torch.Tensor | float | None) -> Any:
    """All of an argument that a plan depends on: of an address, whether 16 bytes divide it."""
    if x is None or isinstance(x, (int, float)):
        return x is None
    return x.dtype, x.shape, x.stride(), x.get_device(), x.data_ptr() % 16
