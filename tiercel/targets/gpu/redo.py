"""The classical product in place of a result that a probe on the device found wrong."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from tiercel.lower.blocking import ceil_div
from tiercel.targets.gpu import check
from tiercel.targets.gpu.classical import classical
from tiercel.targets.gpu.operand import compute_type
from tiercel.targets.gpu.verdict import NAN

_CLASSICAL: Any = classical

#: Thread blocks, of which a multiprocessor of an H200 holds a few: 132 of them.
THREAD_BLOCKS = 528


def redo_where(wrong: Tensor, a: Tensor, b: Tensor, out: Tensor, bias: Tensor | None) -> None:
    """``out = a · b + bias`` where ``wrong``, a bool on the device, is true; waits for nothing.

    a (M, K) and b (K, N) of one dtype, bias (N,). The kernel is made to be right, not fast.
    """
    dtype = str(a.dtype).removeprefix("torch.")
    compute = compute_type(dtype)
    prior = out if bias is None else bias.expand_as(out)
    planes = [_real(x) for x in (a, b, out, prior)]
    (M, K), N = a.shape, b.shape[1]
    block = 32 if compute == tl.float64 or a.is_complex() else 64
    tiles = ceil_div(M, block) * ceil_div(N, block)
    with check.device(a):
        sound, refused = _records(compute == tl.float64, a.device)
        record = torch.where(wrong, refused, sound)
        _CLASSICAL[(min(tiles, THREAD_BLOCKS),)](
            *planes, M, N, K, *(step for x in planes for step in x.stride()),
            1.0, 0.0 if bias is None else 1.0, _sign(a), _sign(b), record, record, 2.0, 2.0,
            COMPLEX=a.is_complex(), PRIOR=bias is not None, COMPUTE=compute, BLOCK=block, DEPTH=16,
            num_warps=4,
        )  # fmt: skip


@lru_cache(maxsize=64)
def _records(double: bool, device: torch.device) -> tuple[Tensor, Tensor]:
    """Records of the guard that it lets pass, and that it refuses; see ``guard.py``."""
    bits, real = ("<q", "<d") if double else ("<i", "<f")
    one, infinity = (struct.unpack(bits, struct.pack(real, x))[0] for x in (1.0, float("inf")))
    dtype = torch.int64 if double else torch.int32
    sound = torch.tensor([one, infinity - one, one], dtype=dtype, device=device)
    return sound, torch.full_like(sound, NAN[dtype])


def _real(x: Tensor) -> Tensor:
    """The matrix's real parts, as stored; imaginary parts follow them in memory."""
    x = x.resolve_neg()
    if not x.is_complex():
        return x
    return torch.view_as_real(x.conj() if x.is_conj() else x)[..., 0]


def _sign(x: Tensor) -> float:
    return -1.0 if x.is_conj() else 1.0
