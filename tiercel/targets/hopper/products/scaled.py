"""A float8 product with scales on the device, added up in float32 or in the tensor cores."""

from __future__ import annotations

import struct
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.targets.hopper.config import Config, Tile
from tiercel.targets.hopper.launching.compile import cubin
from tiercel.targets.hopper.launching.kernel import Kernel
from tiercel.targets.hopper.launching.keys import key_of
from tiercel.targets.hopper.launching.launch import Launch, remember, run
from tiercel.targets.hopper.launching.occupancy import multiprocessors
from tiercel.targets.hopper.operands.operand import of_tensor, output
from tiercel.targets.hopper.operands.scales import scales_of
from tiercel.targets.hopper.products import classical, heuristic, stream_k
from tiercel.targets.hopper.products.checks import check, check_devices
from tiercel.targets.hopper.products.launch import NOTHING, describe
from tiercel.targets.hopper.products.paced import keeps_pace
from tiercel.targets.hopper.products.product import empty_product

if TYPE_CHECKING:
    import torch

_ready: dict[Any, Launch] = {}


def gemm_scaled(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    fast_accumulation: bool = False,
    config: Tile | None = None,
    stream: int | None = None,
) -> torch.Tensor:
    """D = (scale_a · A)·(scale_b · B), the scales being read by the kernel.

    ``a`` (M, K) and ``b`` (K, N): float8_e4m3fn or float8_e5m2 each, contiguous along K. Scales:
    float32, with the shapes that ``scales_of`` in ``operands/scales.py`` lists. ``out`` (M, N):
    bfloat16, the default, float16 or float32.

    Sums of 128 products are added up in float32. ``fast_accumulation`` adds all in the tensor
    cores, with about 14 bits, unless blocks of K have their own scales. Raises
    :class:`TiercelTypeError` and :class:`TiercelValueError`, naming the argument.
    """
    if out is None:
        out = empty_product(a, b)
    key = (
        key_of(a), key_of(b), key_of(scale_a), key_of(scale_b), key_of(out), fast_accumulation,
        config,
    )  # fmt: skip
    ready = _ready.get(key)
    if ready is None:
        ready = remember(
            _ready, key, _prepared(a, b, scale_a, scale_b, out, fast_accumulation, config)
        )
    run(ready, a, stream)
    return out


def _prepared(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor,
    out: torch.Tensor, fast_accumulation: bool, tile: Tile | None,
) -> Launch:  # fmt: skip
    check_devices({"a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b, "out": out})
    left, right, d = of_tensor(a, "a"), of_tensor(b, "b"), of_tensor(out, "out")
    check(left, right, d, None)
    if not left.dtype.startswith("float8"):
        raise TiercelTypeError(
            f"a is {left.dtype}; scales are for float8_e4m3fn and float8_e5m2. Scale other types "
            "in an epilogue"
        )
    if d.batches > 1 or len(out.shape) != 2:
        raise TiercelValueError(f"a is {tuple(a.shape)}; with scales one matrix is allowed")
    if 0 in (d.rows, d.columns):
        return NOTHING
    d_view, flipped, direct = output(d)
    if flipped:
        raise TiercelValueError(f"out has strides {out.stride()}; with scales rows are contiguous")
    M, N, K = left.rows, right.columns, left.columns
    scales = scales_of(scale_a, scale_b, M, N, K)
    promoted = "blocks" in scales.scaling or not fast_accumulation
    device, alternates = a.get_device(), tile is None
    if tile is None:
        sms = multiprocessors(device)
        choose = heuristic.choose_promoted if promoted else heuristic.choose_fast
        tile = choose(M, N, K, sms, scales.scaling)
    config, blocks, params = describe(left, right, d_view, tile, device)
    config = replace(config, direct=direct, promoted=promoted, scaling=scales.scaling)
    if classical.by_warps(config):
        box = d_view.tensor_map(classical.WARP_ROWS, span=config.store_span)
        params = replace(params, maps=(*params.maps[:2], box))
    if direct:
        address = struct.pack("<Qqq", d_view.address, d_view.row_stride, d_view.batch_stride)
        params = replace(params, epilogue=address)
    params = replace(params, scales=scales.pack(), alternates=int(alternates))
    division = stream_k.division(config, params, blocks) if alternates else None
    paced = keeps_pace(config, params, blocks)
    made = _kernel(replace(config, stream_k=division is not None, paced=paced), device)
    return stream_k.shared_launch(made, blocks, params, division, paced, device, ())


@lru_cache(maxsize=64)
def _kernel(config: Config, device: int) -> Kernel:
    mode = f"{config.scaling}-{'promoted' if config.promoted else 'fast'}"
    code = cubin(classical.text(config), f"{config.name}-{mode}")
    return Kernel(code, device, config.shared_bytes)
