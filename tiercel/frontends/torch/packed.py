"""``pack`` of a tensor: a static right operand, in the form that its device's kernels read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.frontends.torch.engine import Request, engine_for
from tiercel.frontends.torch.matmul import matmul
from tiercel.frontends.torch.models.frozen import why_not_packable
from tiercel.frontends.torch.products import computed
from tiercel.frontends.torch.routing import repeated
from tiercel.frontends.torch.routing.operands import followed, transformed
from tiercel.frontends.torch.routing.route import why_left_to_torch
from tiercel.frontends.torch.routing.shortcut import TORCHS
from tiercel.frontends.torch.tensors.autocast import converted
from tiercel.frontends.torch.tensors.out import check_out, into
from tiercel.options import Options


@dataclass(frozen=True, eq=False)
class PackedTensor:
    """``source`` b (K, N) and its packed ``form``, to be passed in place of b.

    Valid until b is changed in place, which torch counts and every use checks. Products that
    autograd follows, and those that gain nothing, read b itself. ``calls``: products that have run.
    """

    source: torch.Tensor
    form: Any
    version: int
    calls: dict[Any, Any] = field(default_factory=dict, repr=False)

    __array_ufunc__ = None  # else NumPy takes it for an object that is an element of an array

    @property
    def shape(self) -> torch.Size:
        return self.source.shape

    @property
    def ndim(self) -> int:
        return self.source.dim()

    @property
    def dtype(self) -> torch.dtype:
        return self.source.dtype

    @property
    def device(self) -> torch.device:
        return self.source.device

    @property
    def algorithm(self) -> str:
        """What b was packed for; "vendor": packing gains nothing, and takes no memory."""
        return self.form.algorithm

    @property
    def nbytes(self) -> int:
        """Bytes held beside b."""
        return self.form.nbytes

    def fresh(self) -> torch.Tensor:
        """b; raises ``TiercelValueError`` if it has changed since it was packed."""
        if self.source._version != self.version:
            raise TiercelValueError(
                f"the packed operand {tuple(self.shape)} was changed in place after packing "
                f"(version {self.version}, now {self.source._version}); pack it again"
            )
        return self.source

    def __repr__(self) -> str:
        size, name = tuple(self.shape), str(self.dtype).removeprefix("torch.")
        mebibytes = self.nbytes / 2**20
        return f"PackedTensor({size}, {name}, for {self.algorithm}, {mebibytes:.1f} MiB)"


def pack(b: Any, rows: int | None, options: Options) -> PackedTensor:
    """See ``tiercel.pack``; ``rows``: not used, tensors are packed for a prefill's rows."""
    if not isinstance(b, torch.Tensor):
        raise TiercelTypeError(f"b is a {type(b).__name__}; allowed: a matrix")
    w = b.t() if b.dim() == 2 else b
    reason = why_not_packable(w)
    engine = engine_for(b.device.type)
    if reason or engine is None:
        raise TiercelTypeError(
            f"b cannot be packed: {reason}; allowed: a plain 2-D tensor that does not require "
            "grad, of a dtype that is accelerated on its device"
        )
    return PackedTensor(b, engine.pack(w, options), b._version)


def packed_matmul(a: Any, b: PackedTensor, out: Any, bias: Any, options: Options) -> torch.Tensor:
    """``epilogue(a @ b + bias)`` for a packed b; see ``tiercel.matmul``."""
    if torch.compiler.is_compiling():  # a graph reads b itself, as it is when the graph runs
        return matmul(a, b.source, out, bias, options)
    source = b.fresh()
    if b.form.panels is None:
        return matmul(a, source, out, bias, options)
    if out is None:
        result = repeated.run_kept(b.calls, a, source, bias, options)
        if result is not None:
            return matmul(a, source, out, bias, options) if result is TORCHS else result
    reason = why_left_to_torch(a, source, bias, out, options, columns_of=-1)
    if not reason and not transformed() and not followed(a, bias):
        result = _planned(converted(a), b, bias, options)
        if result is not None:
            if out is not None:
                check_out(out, a, source, bias)
            return into(out, result)
    return matmul(a, source, out, bias, options)


def _planned(
    a: torch.Tensor, packed: PackedTensor, bias: Any, options: Options
) -> torch.Tensor | None:
    b, (K, N) = packed.source, packed.shape
    if a.shape[-1] != K or a.dtype is not b.dtype:
        return None
    if bias is not None and (bias.shape != (N,) or bias.dtype is not a.dtype):
        return None
    rows = a.reshape(-1, K)
    request = Request(rows, b, bias, options, packed.form, tracked=True, calls=packed.calls)
    result = computed(request, (*a.shape[:-1], N))
    repeated.keep(request, (a, b, bias), result)
    return result
