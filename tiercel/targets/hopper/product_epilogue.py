"""A product with a traced epilogue: operands bound, outputs allocated, one launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tiercel.errors import TiercelValueError
from tiercel.lower.epilogue import Array, Epilogue, Instance, bind
from tiercel.lower.epilogue.cuda_params import pack_params
from tiercel.lower.epilogue.instance import Partial, TileOutput
from tiercel.targets.hopper import heuristic, source
from tiercel.targets.hopper.compile import cubin
from tiercel.targets.hopper.config import Config, Tile
from tiercel.targets.hopper.driver import Arguments, Kernel, multiprocessors
from tiercel.targets.hopper.epilogue import COLUMN_BLOCK, epilogue_text, staged_output
from tiercel.targets.hopper.launch import Launch
from tiercel.targets.hopper.operand import of_tensor, oriented
from tiercel.targets.hopper.product import check, check_devices, describe, key_of, run

if TYPE_CHECKING:
    import torch

#: Calls that write one given tensor, ready to repeat: binding an epilogue takes 0.5 ms.
_ready: dict[Any, tuple[str, Launch]] = {}
MOST_READY = 4096


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

    ``a`` and ``b`` as in ``gemm``. Outputs of tiles have a's dtype and are row-major; reductions
    are float32 and finished (their partial results are summed by torch). ``out``: row-major memory
    for the first tile. Raises :class:`TiercelValueError` where operands do not fit, or the product
    is empty.
    """
    import torch

    known = (
        key_of(out), key_of(a), key_of(b), alpha, config, epilogue,
        *((x, key_of(y) if isinstance(y, torch.Tensor) else y) for x, y in operands.items()),
    )  # fmt: skip
    if known in _ready:
        name, work = _ready[known]
        run(work, a, stream)
        assert out is not None, "only such calls are kept"
        return {name: out}
    tensors = {name: x for name, x in operands.items() if isinstance(x, torch.Tensor)}
    check_devices({"a": a, "b": b, **tensors})
    left, right = of_tensor(a, "a"), of_tensor(b, "b")
    check(left, right, None, None)
    M, N, device = left.rows, right.columns, a.get_device()
    batches = max(x.shape[0] if len(x.shape) == 3 else 1 for x in (a, b))
    lead = (batches,) if max(len(a.shape), len(b.shape)) == 3 else ()
    if 0 in (M, N, batches):
        raise TiercelValueError(f"the product is {batches} times {M}x{N}; an epilogue needs more")
    arrays = {name: _array(x) for name, x in operands.items()}
    instance = bind(epilogue, (*lead, M, N), arrays, dtype=left.dtype)
    tile = config
    if tile is None:
        sms = multiprocessors(device)
        tile = heuristic.choose(M, N, left.columns, batches, sms, splits=False).tile

    made = {
        x.name: torch.empty(
            (*lead, M, _columns(N, x.width)), dtype=getattr(torch, x.dtype), device=a.device
        )
        for x in instance.outputs[out is not None :]
    }
    if out is not None:
        made = {instance.outputs[0].name: out, **made}
    partials = {
        x.name: torch.empty(_partial_shape(x, lead, M, N, tile), device=a.device)
        for x in instance.partials
    }
    staged = staged_output(instance, N)
    # Without an output for TMA its descriptor is never used: any valid array will do.
    d = of_tensor(made[staged.name], "out") if staged else oriented(left, "a")[0]
    plan, blocks, params = describe(left, right, d, tile, device)
    values: dict[str, Array | float] = {**arrays, **{name: _array(x) for name, x in made.items()}}
    values |= {x.name: _partial_array(x, partials[x.name]) for x in instance.partials}
    values |= {name: float(x) for name, x in operands.items() if name not in tensors}
    params = replace(
        params, alpha=alpha, batches=batches, epilogue=pack_params(instance, N, values)
    )
    work = Launch(_kernel(plan, instance, staged, device), blocks, Arguments(params.pack()))
    run(work, a, stream)
    if out is not None and len(instance.outputs) == 1 and not instance.partials:
        if len(_ready) >= MOST_READY:  # addresses may never come again
            _ready.clear()
        _ready[known] = (instance.outputs[0].name, work)
    return made | {x.name: _finished(x, partials[x.name]) for x in instance.partials}


def _array(x: torch.Tensor | float) -> Array:
    if isinstance(x, (int, float)):
        return Array(None)
    return Array(
        tuple(x.shape), str(x.dtype).removeprefix("torch."), tuple(x.stride()), x.data_ptr()
    )


def _partial_array(x: Partial, partial: torch.Tensor) -> Array:
    """A partial result's array; those of a log-sum-exp count pairs."""
    whole = _array(partial)
    if x.kind != "logsumexp" or whole.shape is None or whole.strides is None:
        return whole
    strides = tuple(stride // 2 for stride in whole.strides[:-1])
    return Array(whole.shape[:-1], whole.dtype, strides, whole.address)


def _columns(N: int, width: int) -> int:
    return N * 2**width if width >= 0 else N // 2**-width


def _partial_shape(x: Partial, lead: tuple[int, ...], M: int, N: int, tile: Tile) -> list[int]:
    """(B, M, blocks) or (B, blocks, columns), and pairs for a log-sum-exp."""
    pair = (2,) if x.kind == "logsumexp" else ()
    if x.over == "row":
        return [*lead, M, -(-N // tile.n), *pair]
    return [*lead, -(-M // COLUMN_BLOCK), _columns(N, x.width), *pair]


def _finished(x: Partial, partial: torch.Tensor) -> torch.Tensor:
    """A reduction from its partial results; the reduced axis stays, with length 1."""
    import torch

    axis = -1 if x.over == "row" else -2
    if x.kind == "logsumexp":
        partial = partial[..., 0] + partial[..., 1].log()
        return torch.logsumexp(partial, axis, keepdim=True)
    if x.kind == "max":
        return partial.amax(axis, keepdim=True)
    total = partial.sum(axis, keepdim=True)
    if x.to in ("scalar", "batch"):
        total = total.sum(-1 if x.over == "column" else -2, keepdim=True)
    return total.sum(0) if x.to == "scalar" and total.dim() == 3 else total


@lru_cache(maxsize=256)
def _kernel(config: Config, instance: Instance, staged: TileOutput | None, device: int) -> Kernel:
    if staged is not None:
        config = replace(config, output=staged.dtype)
    name = f"{instance.epilogue.name}-{config.name}"
    text = epilogue_text(instance, staged)
    code = cubin(source.text(config, source.plain_program(config.operand), text), name)
    return Kernel(code, device, config.tile.shared_bytes)
