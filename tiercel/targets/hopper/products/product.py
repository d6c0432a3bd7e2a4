"""``gemm``: the tile chosen, the launch prepared once for each kind of call, then repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.targets.hopper.config import Tile
from tiercel.targets.hopper.launching.keys import kind_of
from tiercel.targets.hopper.launching.launch import Runnable, Sequence, remember, run
from tiercel.targets.hopper.launching.movable import Movable, Ready, extent_of
from tiercel.targets.hopper.launching.occupancy import multiprocessors
from tiercel.targets.hopper.operands import tf32 as tf32_operands
from tiercel.targets.hopper.operands.operand import of_tensor
from tiercel.targets.hopper.products import heuristic, split
from tiercel.targets.hopper.products.checks import check, check_devices
from tiercel.targets.hopper.products.launch import launch_of

if TYPE_CHECKING:
    import torch

_ready: dict[Any, Ready] = {}


def gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    c: torch.Tensor | None = None,
    tf32: bool = False,
    config: Tile | None = None,
    stream: int | None = None,
) -> torch.Tensor:
    """D = alpha · A·B + beta · C on the tensors' device.

    ``a`` (M, K) or (batch, M, K), ``b`` (K, N) or (batch, K, N): bfloat16 or float16, any layout in
    which one dimension is contiguous and the other strides are multiples of 16 bytes; contiguous
    along K, float8_e4m3fn or float8_e5m2, or one of each (scales go into ``alpha``); or, if
    ``tf32`` allows it, float32, of which an operand may have to be copied (see
    ``operands/tf32.py``). A batch of one, or of stride 0, is broadcast. Products accumulate in
    float32, those of float8 in the tensor cores' own precision ("fast accumulation"; see
    ``gemm_scaled``).

    ``out`` (M, N) or (batch, M, N) is bfloat16, float16 or float32; a new one has the operands'
    dtype, bfloat16 for float8. ``c`` has the dtype and shape of ``out`` and may be it. ``config``
    fixes the tile; by default ``heuristic`` chooses. ``stream``: a raw CUDA stream, the device's
    current one by default.

    Raises :class:`TiercelValueError` or :class:`TiercelTypeError`, naming the argument, for what
    the kernel does not take: the caller may then use the vendor's routine.
    """
    given = out
    if out is None:
        out = empty_product(a, b)
    if a.dtype.itemsize == 4:
        if not tf32:
            raise TiercelTypeError(
                f"a is {a.dtype}, which the tensor cores multiply as TF32, with 11 bits; allow it "
                "by tf32=True, or use the vendor's routine"
            )
        a, b = tf32_operands.readable(a, b, out, beta == 0)
    key = _key(a, b, given, c, alpha, beta, config, stream)
    ready = _ready.get(key)
    if ready is not None:
        tile, parts = ready.choice
    elif config is None and beta == 0 and stream is None:
        tile, parts = _choice(a, b, out)
    else:
        tile, parts = config, None
    arrays, work = [a, b, out], None
    if c is not None:
        arrays.append(c)
    if parts is not None:
        work = _sums(a, parts)
        arrays.append(work)
    addresses = [x.data_ptr() for x in arrays]
    if ready is None or not ready.movable.reaches(addresses):
        made = _prepared(a, b, out, c, work, alpha, beta, tile, config is None)
        movable = Movable(made.launches, [extent_of(x) for x in arrays])
        ready = remember(_ready, key, Ready(made, movable, (tile, parts)))
    with ready.movable.lock:
        ready.movable.to(addresses)
        run(ready.launch, a, stream)
    return out


def _key(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None, c: torch.Tensor | None,
    alpha: float, beta: float, config: Tile | None, stream: int | None,
) -> Any:  # fmt: skip
    return (
        kind_of(a), kind_of(b), None if out is None else kind_of(out),
        None if c is None else kind_of(c), alpha, beta, config, stream is None,
    )  # fmt: skip


def prepared_for(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> Ready | None:
    """What ``gemm(a, b, out=out)`` launches, if it has run."""
    return _ready.get(_key(a, b, out, None, 1.0, 0.0, None, None))


def _choice(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor
) -> tuple[Tile | None, tuple[int, int, int] | None]:
    """Tile by the heuristic, and the shape of float32 parts if K is to be split (parts, M, N)."""
    if len(out.shape) != 2 or len(a.shape) != 2 or len(b.shape) != 2 or not a.is_cuda:
        return None, None
    if a.dtype.itemsize > 4:  # float64 and complex, which are refused with their name later
        return None, None
    M, N = out.shape
    row, column = out.stride()
    swapped = tf32_operands.swaps(a, b)
    choice = heuristic.choose(
        *((N, M) if swapped else (M, N)), a.shape[1] * a.dtype.itemsize // 2, 1,
        multiprocessors(a.get_device()),
        splits=column == 1 and row % 2 == 0 and out.data_ptr() % 8 == 0,  # stored in pairs
        k_major=b.stride(0) == 1 and column == 1 and not swapped,
        item=a.dtype.itemsize, shares=True,
    )  # fmt: skip
    if choice.parts == 1:
        return choice.tile, None
    return choice.tile, (choice.parts, M, N)


def _sums(like: torch.Tensor, shape: tuple[int, int, int]) -> torch.Tensor:
    """Memory for the float32 results of parts of K."""
    import torch

    return like.new_empty(shape, dtype=torch.float32)


def empty_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """An output for A·B, of A's dtype."""
    if len(a.shape) == len(b.shape) == 2 and a.dtype.itemsize > 1:
        return a.new_empty(a.shape[0], b.shape[1])
    import torch

    batch = (a if len(a.shape) >= len(b.shape) else b).shape[:-2]
    if len(a.shape) == len(b.shape) == 3:
        batch = (max(a.shape[0], b.shape[0]),)
    dtype = a.dtype if a.dtype.itemsize > 1 else torch.bfloat16
    return torch.empty((*batch, a.shape[-2], b.shape[-1]), dtype=dtype, device=a.device)


def _prepared(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, c: torch.Tensor | None,
    work: torch.Tensor | None, alpha: float, beta: float, tile: Tile | None, alternates: bool,
) -> Runnable:  # fmt: skip
    check_devices({"a": a, "b": b, "out": out, "c": c})
    if beta != 0 and c is None:
        raise TiercelValueError(f"beta is {beta} and c is missing; give c, or leave beta 0")
    left, right, d = of_tensor(a, "a"), of_tensor(b, "b"), of_tensor(out, "out")
    added = of_tensor(c, "c") if c is not None and beta != 0 else None
    device = a.get_device()
    if work is None:
        return launch_of(left, right, d, added, alpha, beta, device, tile, alternates=alternates)
    check(left, right, d, None)
    parts = of_tensor(work, "work")
    left, right = split.parts_of(left, right, parts.batches)
    multiply = launch_of(left, right, parts, None, 1.0, 0.0, device, tile)
    return Sequence((multiply, split.reduction(parts, d, alpha, device)))
