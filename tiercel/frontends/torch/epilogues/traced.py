"""Products of tensors with a traced epilogue: one kernel on a Hopper, torch's operations elsewhere.

The kernel computes everything from the float32 accumulator. Elsewhere the product is rounded to the
operands' dtype first, and the epilogue is computed in float32 (float64) from that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.frontends.torch.epilogues import again
from tiercel.frontends.torch.epilogues.graph import evaluate
from tiercel.frontends.torch.packed import PackedTensor
from tiercel.frontends.torch.routing.operands import are_plain, followed, watched
from tiercel.frontends.torch.tensors.autocast import converted
from tiercel.frontends.torch.tensors.out import into
from tiercel.lower.epilogue.affine import around
from tiercel.options import DEFAULT, Options

#: Dtypes whose epilogues are computed in float32.
HALF = (torch.float16, torch.bfloat16)

#: Epilogues and shapes that have run, and so are compiled.
_ran: set[Any] = set()


def has_epilogues(a: Any, b: Any) -> bool:
    """Whether a product has any: real floating matrices have."""
    x, y = (x if isinstance(x, torch.Tensor) else getattr(x, "source", None) for x in (a, b))
    if x is None or y is None:
        return False
    return x.is_floating_point() and y.is_floating_point() and min(x.dim(), y.dim()) >= 2


def with_traced_epilogue(
    product: Callable[[Options], torch.Tensor], a: Any, b: Any, bias: Any, out: Any,
    options: Options,
) -> Any:  # fmt: skip
    """The outputs of ``options.epilogue``, a ``Given``, for ``a @ b + bias``.

    ``product`` computes that by itself, under the options it is given. Returns a tensor, or a
    dictionary of them where the epilogue has several outputs.
    """
    given: Any = options.epilogue
    if torch.compiler.is_compiling():
        from tiercel.frontends.torch.ops import epilogue

        results = epilogue.in_graph(given, a, b, bias, options.with_epilogue(None))
        return received(given, results, out)
    results = by_kernel(given, a, b, bias, options)
    if results is None:
        results = evaluated(given, product(options.with_epilogue(None)))
    return received(given, results, out)


def evaluated(given: Any, product: torch.Tensor) -> dict[str, torch.Tensor]:
    """The outputs by torch's operations, computed in float32 of 16-bit products.

    Raises ``TiercelTypeError`` for other products than those of real floating matrices.
    """
    if not product.is_floating_point() or product.dim() < 2:
        raise TiercelTypeError(
            f"{given} needs a product of real floating matrices, not one of {product.dtype} "
            f"{tuple(product.shape)}; apply the epilogue to the result"
        )
    acc = product.float() if product.dtype in HALF else product
    return evaluate(given.epilogue, acc, given.operands, product.dtype)


def received(given: Any, results: dict[str, torch.Tensor], out: Any) -> Any:
    """The only output, in the caller's ``out`` if there is one, or the dictionary of several."""
    if not given.epilogue.single:
        if out is not None:
            raise TiercelValueError(
                f"out cannot receive the outputs {', '.join(results)}; leave it out"
            )
        return results
    (result,) = results.values()
    if out is not None and (out.shape != result.shape or out.dtype is not result.dtype):
        raise TiercelValueError(
            f"out is {out.dtype} {tuple(out.shape)}, the epilogue makes {result.dtype} "
            f"{tuple(result.shape)}; pass an out like that"
        )
    return into(out, result)


def by_kernel(
    given: Any, a: Any, b: Any, bias: Any, options: Options
) -> dict[str, torch.Tensor] | None:
    """The outputs from one launch of a Hopper kernel; None where none serves.

    By a scheme where b is packed for one and the plan says so, else classically.
    """
    tensors = _tensors(given)
    if bias is not None:
        given = around(given, 1.0, 0.0, None, bias)
        tensors = (*tensors, bias)
    packed, b = (b, b.fresh()) if isinstance(b, PackedTensor) else (None, b)
    if not are_plain(a, b, *tensors) or not a.is_cuda or watched() or followed(a, b, *tensors):
        return None
    a, b = converted(a), converted(b)
    from tiercel.frontends.torch.cuda.machine import capturing

    usual = options.with_epilogue(None) == DEFAULT
    if packed is not None and is_for_kernel(a, b, replace(options, scheme=None)):
        from tiercel.frontends.torch.epilogues.packed import by_scheme

        results = by_scheme(given, a, packed, options)
        if results is not None:
            if usual:
                again.remember("scheme", given.epilogue, a, b, packed)
            return results
        usual &= not (_rests(packed) or capturing())  # or another call may go by the scheme
    if not is_for_kernel(a, b, options):
        return None
    from tiercel.targets.hopper import gemm_epilogue

    seen = (given.epilogue, a.shape, a.stride(), b.shape, b.stride(), a.dtype, a.device)
    if capturing() and seen not in _ran:
        return None
    try:
        made = gemm_epilogue(a, b, given.epilogue, given.operands)
    except (TiercelValueError, TiercelTypeError):  # what TMA cannot read, among others
        return None
    _ran.add(seen)
    if usual:
        again.remember("classical", given.epilogue, a, b, packed)
    return made


def _rests(packed: PackedTensor) -> bool:
    """Whether the data of an earlier product were refused, so that its scheme rests for a while."""
    return packed.form.kind == "fused" and packed.form.panels.refusals.resting()


def is_for_kernel(a: torch.Tensor, b: torch.Tensor, options: Options) -> bool:
    """Whether the Hopper kernel multiplies such tensors, under such options."""
    if options.scheme not in (None, "classical") or options.batch_invariant or not a.is_cuda:
        return False
    if a.dtype not in HALF or a.dtype is not b.dtype or not a.dim() == b.dim() == 2:
        return False
    from tiercel.frontends.torch.cuda.machine import why_not_hopper

    return not why_not_hopper(a.get_device())


def _tensors(given: Any) -> tuple[torch.Tensor, ...]:
    return tuple(x for x in given.operands.values() if isinstance(x, torch.Tensor))
