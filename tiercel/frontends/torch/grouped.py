"""``grouped_matmul`` of tensors: one launch on a Hopper, torch's own or a loop elsewhere."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import torch

from tiercel.errors import TiercelRuntimeError, TiercelTypeError, TiercelValueError
from tiercel.frontends.numpy.grouped import check_shapes, options_of, row_bounds
from tiercel.frontends.torch.epilogues.traced import with_traced_epilogue
from tiercel.frontends.torch.matmul import matmul
from tiercel.frontends.torch.routing.operands import are_plain, followed, watched
from tiercel.frontends.torch.tensors.autocast import converted
from tiercel.frontends.torch.tensors.errors import TensorTypeError
from tiercel.frontends.torch.tensors.out import into
from tiercel.lower.epilogue import Given
from tiercel.options import DEFAULT
from tiercel.targets import hopper


def grouped_matmul(
    a: Any, b: Any, offsets: Any, out: Any, given: Given | None = None
) -> torch.Tensor:
    """Rows of group g of a times b[g]; see ``tiercel.grouped_matmul``."""
    for name, x in (("a", a), ("b", b), ("offsets", offsets)):
        if not isinstance(x, torch.Tensor) or x.device != a.device:
            where = x.device if isinstance(x, torch.Tensor) else type(x).__name__
            raise TensorTypeError(f"{name} is on {where}; allowed: tensors on one device, as all")
    check_shapes(a.shape, b.shape)
    a, b = converted(a), converted(b)
    if a.dtype is not b.dtype:
        raise TensorTypeError(f"a is {a.dtype} and b {b.dtype}; allowed: one dtype, convert one")
    if given is not None:
        return _with_epilogue(a, b, offsets, out, given)
    if not followed(a, b):
        return product(a, b, offsets, out)
    if out is not None:
        raise _not_differentiable()
    made: Any = _Grouped.apply(a, b, offsets)
    return made


def _not_differentiable() -> TiercelRuntimeError:
    return TiercelRuntimeError(
        "out= is not differentiable, and an argument requires grad; leave out= away, or call under "
        "torch.no_grad()"
    )


def _with_epilogue(
    a: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor, out: torch.Tensor | None, given: Given
) -> torch.Tensor:
    """In one launch, or, where it is to be differentiated or is elsewhere, group by group."""
    tensors = [x for x in given.operands.values() if isinstance(x, torch.Tensor)]
    if followed(a, b, *tensors):
        if out is not None:
            raise _not_differentiable()
    elif _is_for_hopper(a, b, offsets, out, *tensors):
        try:
            return hopper.grouped_gemm(
                _rows(a), b, offsets, epilogue=given.epilogue, operands=given.operands, out=out
            )
        except (TiercelValueError, TiercelTypeError):  # what TMA cannot read, among others
            pass
    bounds = row_bounds(offsets.tolist(), len(b), len(a))
    parts = [
        with_traced_epilogue(
            partial(matmul, a[start:end], b[group], None, None),
            a[start:end], b[group], None, None, options_of(given, group, start, end, b, a),
        )
        for group, (start, end) in enumerate(pairwise(bounds))
    ]  # fmt: skip
    rest = parts[0].new_zeros((len(a) - bounds[-1], parts[0].shape[1]))
    return into(out, torch.cat((*parts, rest)))


def _rows(a: torch.Tensor) -> torch.Tensor:
    """a with contiguous rows: a group may begin at any."""
    return a if a.stride(1) == 1 else a.contiguous()


def product(
    a: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor, out: torch.Tensor | None = None
) -> torch.Tensor:
    """The grouped product, without its derivative. Rows behind the last group become 0."""
    shape = (a.shape[0], b.shape[2])
    if out is not None and (tuple(out.shape) != shape or out.device != a.device):
        raise TiercelValueError(
            f"out is {tuple(out.shape)} on {out.device}; allowed: {shape} on {a.device}"
        )
    if _is_for_hopper(a, b, offsets, out):
        try:
            return hopper.grouped_gemm(_rows(a), b, offsets, out=out)
        except (TiercelValueError, TiercelTypeError):  # what TMA cannot read, among others
            pass
    made = _torchs(a, b, offsets[len(offsets) - len(b) :])
    if made is not None:
        behind = torch.arange(len(a), device=a.device) >= offsets[-1]
        return into(out, made.masked_fill_(behind[:, None], 0))
    bounds = row_bounds(offsets.tolist(), b.shape[0], a.shape[0])
    made = a.new_empty(shape) if out is None else out
    for group, (start, end) in enumerate(pairwise(bounds)):
        if start < end:
            made[start:end] = matmul(a[start:end], b[group], None, None, DEFAULT)
    made[bounds[-1] :] = 0
    return made


def weight_grad(a: torch.Tensor, g: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """a[rows of group]ᵀ · g[rows of group] of each group: (G, K, N); ``ends`` of the groups."""
    made = _torchs(a.t(), g, ends)
    if made is not None:
        return made
    bounds = row_bounds(ends.tolist(), len(ends), len(a))
    made = a.new_empty((len(ends), a.shape[1], g.shape[1]))
    for group, (start, end) in enumerate(pairwise(bounds)):
        made[group] = matmul(a[start:end].mT, g[start:end], None, None, DEFAULT)
    return made


def _is_for_hopper(*tensors: torch.Tensor | None) -> bool:
    a = tensors[0]
    return (
        a is not None
        and a.is_cuda
        and a.dtype.itemsize <= 2
        and a.is_floating_point()
        and are_plain(*tensors)
        and not (torch.compiler.is_compiling() or watched())
        and hopper.available(a.get_device()) is None
    )


class _Grouped(torch.autograd.Function):
    """∂a is a grouped product with the transposed matrices; ∂b[g] = a[rows]ᵀ · grad[rows]."""

    @staticmethod
    def forward(ctx: Any, a: Any, b: Any, offsets: Any) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.save_for_backward(a, b, offsets)
        return product(a, b, offsets)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        a, b, offsets = ctx.saved_tensors
        grad = grad.contiguous()  # that of a sum repeats one element
        needs_a, needs_b, _ = ctx.needs_input_grad
        ends = offsets[len(offsets) - len(b) :]
        return (
            grouped_matmul(grad, b.mT, ends, None) if needs_a else None,
            weight_grad(a, grad, ends) if needs_b else None,
            None,
        )


def _torchs(a: torch.Tensor, b: torch.Tensor, ends: torch.Tensor) -> torch.Tensor | None:
    """torch's own grouped product, which does not wait for the device; None where it has none."""
    own: Any = getattr(torch, "_grouped_mm", None)
    if own is None or not a.is_cuda or a.dtype is not torch.bfloat16:
        return None
    try:
        return own(a, b, offs=ends.int())
    except RuntimeError:  # a layout or a device that it does not take
        return None
