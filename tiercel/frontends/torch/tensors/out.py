"""The caller's ``out``: checked before anything is written, never resized."""

from __future__ import annotations

from typing import Any

import torch

from tiercel.errors import TiercelRuntimeError
from tiercel.frontends.torch.tensors.errors import TensorTypeError, TensorValueError


def check_out(out: Any, a: Any, b: Any, bias: Any) -> None:
    """Raise unless ``out`` can receive ``a @ b`` as it is; a and b are left to torch to check."""
    if not isinstance(out, torch.Tensor):
        raise TensorTypeError(f"out is a {type(out).__name__}; allowed: a torch.Tensor, or None")
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return
    compiling = torch.compiler.is_compiling()  # follows neither question below
    if not compiling and out.is_inference() and not torch.is_inference_mode_enabled():
        raise TiercelRuntimeError(
            "out is an inference tensor, which torch lets nobody write outside of inference mode; "
            "pass a clone of it, or none"
        )
    tensors = (a, b, out) if bias is None else (a, b, out, bias)
    if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
        raise TiercelRuntimeError(
            "out= is not differentiable, and an argument requires grad; leave out= away, or call "
            "under torch.no_grad()"
        )
    if a.dim() == b.dim() == 2:
        expected = (a.shape[0], b.shape[1])
    else:
        batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        expected = (*batch, *a.shape[-2:-1], *(b.shape[-1:] if b.dim() > 1 else ()))
    if tuple(out.shape) != expected:
        raise TensorValueError(
            f"out has shape {tuple(out.shape)}, the result {expected}; an out is not resized: pass "
            "one of the result's shape"
        )
    if out.device != a.device:
        raise TensorValueError(
            f"out is on {out.device}, the operands on {a.device}; pass an out there, or none"
        )
    if out.dtype is not a.dtype:
        raise TensorTypeError(
            f"out has dtype {out.dtype}, the operands {a.dtype}; pass an out of that dtype, or "
            "convert the result"
        )


def writable_in_place(out: torch.Tensor, *read: torch.Tensor | None) -> bool:
    """Whether a kernel may write ``out`` while it reads the tensors of ``read``."""
    memory = out.untyped_storage().data_ptr()
    shared = any(x is not None and x.untyped_storage().data_ptr() == memory for x in read)
    return out.is_contiguous() and not (shared or out.is_neg() or out.is_conj())


def into(out: torch.Tensor | None, result: torch.Tensor) -> torch.Tensor:
    """``result``, copied into the caller's ``out`` if there is one."""
    return result if out is None else out.copy_(result)
