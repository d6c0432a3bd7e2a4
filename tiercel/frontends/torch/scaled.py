"""``scaled_matmul`` of float8 tensors: the faster kernel on a Hopper, float32 elsewhere."""

from __future__ import annotations

from typing import Any

import torch

from tiercel.errors import TiercelError
from tiercel.frontends.torch.routing.operands import are_plain, followed, watched
from tiercel.frontends.torch.tensors.errors import TensorTypeError, TensorValueError
from tiercel.targets import hopper
from tiercel.targets.hopper.operands.scales import BLOCK, Scales, scales_of

FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
#: Multiply-adds from which the own kernel takes scales of rows, and one number added up in float32:
#: sustained, 1.05 to 1.07 of cuBLAS at 4096³ and 1.00 to 1.04 at 8192³. Below it was not compared.
OWN_FROM = 4096**3
OUTPUTS = (torch.bfloat16, torch.float16, torch.float32)


def scaled_matmul(
    a: Any, b: Any, scale_a: Any, scale_b: Any, out: Any, out_dtype: Any, fast_accumulation: bool
) -> torch.Tensor:
    """(scale_a · a) @ (scale_b · b); see ``tiercel.scaled_matmul``."""
    named = {"a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b}
    for name, x in named.items():
        if not isinstance(x, torch.Tensor) or x.device != a.device:
            where = x.device if isinstance(x, torch.Tensor) else type(x).__name__
            raise TensorTypeError(f"{name} is on {where}; allowed: tensors on one device, as all")
    for name, x in (("a", a), ("b", b)):
        if x.dtype not in FLOAT8 or x.dim() != 2:
            raise TensorTypeError(
                f"{name} is {x.dtype} {tuple(x.shape)}; allowed: matrices of float8_e4m3fn or "
                "float8_e5m2. Other types need no scales: use matmul"
            )
    if a.shape[1] != b.shape[0]:
        raise TensorValueError(
            f"a has {a.shape[1]} columns and b {b.shape[0]} rows; they must agree"
        )
    if followed(*named.values()):
        raise TensorTypeError("scaled_matmul is not differentiable; call under torch.no_grad()")
    (M, K), N = a.shape, b.shape[1]
    scales = scales_of(scale_a, scale_b, M, N, K)
    given, out = out, _checked_output(out, out_dtype, a, N)
    if a.is_cuda and are_plain(*named.values()) and not watched() and _is_hopper(a):
        slow = scales.scaling == "vectors" or (scales.scaling == "number" and not fast_accumulation)
        if slow and M * N * K < OWN_FROM:
            made = _vendors(a, b, scale_a, scale_b, out.dtype, fast_accumulation)
            if made is not None:
                return made if given is None else out.copy_(made)
        try:
            return hopper.gemm_scaled(
                a, b, scale_a, scale_b, out=out, fast_accumulation=fast_accumulation
            )
        except TiercelError:  # a layout that TMA cannot read
            pass
    return out.copy_(in_float32(a, b, scale_a, scale_b, scales))


def in_float32(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, scales: Scales
) -> torch.Tensor:
    """The product of the scaled operands, written out in float32."""
    if "blocks" in scales.scaling:
        scale_a = scale_a.repeat_interleave(BLOCK, 1)[:, : a.shape[1]]
        scale_b = scale_b.repeat_interleave(BLOCK, 0)[: b.shape[0]]
    if scales.scaling == "blocks":
        scale_b = scale_b.repeat_interleave(BLOCK, 1)[:, : b.shape[1]]
    return (a.float() * scale_a) @ (b.float() * scale_b)


def _vendors(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor,
    dtype: torch.dtype, fast_accumulation: bool,
) -> torch.Tensor | None:  # fmt: skip
    """By cuBLAS, or None where it does not take the layout."""
    try:
        return torch._scaled_mm(
            a, b, scale_a, scale_b, out_dtype=dtype, use_fast_accum=fast_accumulation
        )
    except RuntimeError:
        return None


def _is_hopper(a: torch.Tensor) -> bool:
    return hopper.available(a.get_device()) is None


def _checked_output(out: Any, out_dtype: Any, a: torch.Tensor, N: int) -> torch.Tensor:
    shape = (a.shape[0], N)
    if out is None:
        dtype = torch.bfloat16 if out_dtype is None else out_dtype
        if dtype not in OUTPUTS:
            raise TensorTypeError(f"out_dtype is {dtype}; allowed: {', '.join(map(str, OUTPUTS))}")
        return torch.empty(shape, dtype=dtype, device=a.device)
    if tuple(out.shape) != shape or out.device != a.device:
        raise TensorValueError(
            f"out is {tuple(out.shape)} on {out.device}; allowed: {shape} on {a.device}"
        )
    if out.dtype not in OUTPUTS or out_dtype not in (None, out.dtype):
        raise TensorTypeError(
            f"out is {out.dtype} and out_dtype {out_dtype}; allowed: {', '.join(map(str, OUTPUTS))}"
            ", and out_dtype the same or left out"
        )
    return out
