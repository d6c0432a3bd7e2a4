"""``product`` and ``pack``: what the rest of tiercel calls."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache, reduce
from typing import Any

import torch
from torch import Tensor

from tiercel.errors import TiercelValueError
from tiercel.lower.program import lower
from tiercel.lower.recipe import Guard
from tiercel.schemes import Scheme, tensor
from tiercel.targets.gpu import check, guard, ready, steps
from tiercel.targets.gpu.heard import Report
from tiercel.targets.gpu.layout import Layout
from tiercel.targets.gpu.multiply import vendor
from tiercel.targets.gpu.operand import NAMES
from tiercel.targets.gpu.packed import Packed, version
from tiercel.targets.gpu.packing import packed_planes
from tiercel.targets.gpu.recipe import (
    MOST_BLOCKS,
    MOST_PRODUCTS,
    Recipe,
    recipe_for,
    workspace_bytes,
)
from tiercel.targets.gpu.sides import sides


def product(
    a: Tensor,
    b: Tensor | Packed,
    scheme: Scheme | Sequence[Scheme],
    levels: int = 1,
    *,
    out: Tensor | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    c: Tensor | None = None,
    workspace: int | None = None,
    guarded: bool | Guard = True,
    report: Report | None = None,
) -> Tensor:
    """``alpha · a · b + beta · c`` by a scheme, on the current stream, waiting for nothing.

    Data for which a scheme would lose accuracy that the classical product keeps (rows or columns of
    very different scale, NaN, Inf, values near overflow) give the classical product. Gradients are
    not recorded.

    Args:
        a: (..., M, K), any strides, on a GPU: float16, bfloat16, float32, float64, complex64 or
            complex128. float32 products follow ``torch.backends.cuda.matmul``.
        b: (..., K, N) of the same dtype, batch dimensions broadcast against those of ``a``; or the
            result of ``pack`` with the same scheme and levels.
        scheme: one scheme, or several (outermost first).
        levels: how often to repeat it.
        out: (..., M, N), any strides, where the result goes.
        alpha: real factor of the product.
        beta: real factor of ``c``; with 0, ``c`` is not read.
        c: broadcastable to (..., M, N): the summand, or with shape (N,) a bias.
        workspace: most bytes of extra device memory. Fewer levels are then computed at once, and
            the vendor's routine is used when not even one product fits; None is no limit.
        guarded: False leaves out the check of the data, a ``Guard`` sets its limits.
        report: gets what the guard's verdict is made of on the device, see ``heard.py``.

    Raises:
        TiercelTypeError: another dtype, or operands that differ in dtype or device.
        TiercelValueError: shapes that do not fit, or a packed operand made for something else.
        TiercelRuntimeError: 16-bit operands and a PyTorch before 2.8.
    """
    packed = b.fresh() if isinstance(b, Packed) else None
    right: Tensor = packed.b if packed else b  # type: ignore[assignment]
    settings = (scheme, levels, alpha, beta, workspace, guarded)
    c = None if beta == 0 else c
    if out is None:
        return _product(a, right, out, c, packed, settings, report)
    prepared = ready.repeat(a, right, out, c, packed, settings)
    if prepared is None or _overlaps(out, a, right, c):
        return _product(a, right, out, c, packed, settings, report)
    with check.device(a):
        prepared.run(a, right, out, _spread(c, out), packed, report)
    return out


def _product(
    a: Tensor, b: Tensor, out: Tensor | None, c: Tensor | None, packed: Packed | None,
    settings: Any, report: Report | None,
) -> Tensor:  # fmt: skip
    """``product`` of operands that are not known to be in order."""
    check.operands(a, b)
    given = a, b, out, c
    scheme, levels, alpha, beta, workspace, guarded = settings
    schemes = check.levels(scheme, levels)
    alpha, beta = check.real_scalar("alpha", alpha), check.real_scalar("beta", beta)
    shape = (*torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    if out is not None:
        check.result(out, shape, a)
    result = torch.empty(shape, dtype=a.dtype, device=a.device) if out is None else out
    a, b = a.resolve_neg(), b.resolve_neg()
    c, beta = _spread(c, result), beta if c is not None else 0.0
    target = result
    if result.is_conj() or result.is_neg() or _overlaps(result, a, b, c):
        target = torch.empty(shape, dtype=a.dtype, device=a.device)

    dtype = NAMES[a.dtype]
    a, b, to, c = _folded(a, b, target, c)
    M, N, K = *to.shape[-2:], a.shape[-1]
    recipe = _recipe(packed, schemes, (M, N, K), dtype, workspace)
    limits = _limits(schemes, dtype, K) if guarded is True else (guarded or None)
    with check.device(a):
        if recipe is not None and packed is None and _shares_planes(b, to, recipe):
            packed = _pack(b.reshape(-1, K, N)[0], recipe, M)
        for a2, b2, out2, c2 in _matrices(a, b, to, c):
            if recipe is None or 0 in (M, N, K):
                vendor(a2, b2, out2, alpha, beta, c2)
                continue
            call = _call(a2, b2, out2, c2, alpha, beta, limits, recipe, packed)
            prepared = steps.prepare(call)
            prepared.run(a2, b2, out2, c2, packed, report)
            if out2 is out:
                ready.remember(*given, packed, settings, prepared)
        if target is not result:
            result.copy_(target)
    return result


def _spread(c: Tensor | None, out: Tensor) -> Tensor | None:
    """``c`` with the shape of the result, as it is stored."""
    return None if c is None else c.resolve_conj().resolve_neg().expand(out.shape)


def pack(b: Tensor, scheme: Scheme | Sequence[Scheme], levels: int = 1) -> Packed:
    """Planes of a static right operand ``b`` (K, N), for ``product`` with the same levels.

    Holds ``b`` and must not outlive its values: ``product`` refuses a ``b`` that was changed in
    place. Memory beyond ``b`` is ``nbytes``, about (R / mk)^levels times ``b``.

    >>> from tiercel.schemes import get
    >>> packed = pack(weight, get("strassen"), 2)                     # doctest: +SKIP
    >>> y = product(x, packed, get("strassen"), 2)                    # doctest: +SKIP
    """
    check.matrix("b", b)
    if b.dim() != 2 or 0 in b.shape:
        raise TiercelValueError(
            f"a packed operand is one matrix (K, N) with elements: got {tuple(b.shape)}; pack "
            "the matrices of a batch one by one"
        )
    schemes = check.levels(scheme, levels)
    K, N = b.shape
    # M is not known: a square product decides whether products are batched
    recipe = recipe_for(schemes, N, N, K, NAMES[b.dtype])
    if recipe is None:
        raise TiercelValueError(_too_large(schemes, b.dtype))
    with check.device(b):
        return _pack(b, recipe, N)


def _pack(b: Tensor, recipe: Recipe, M: int) -> Packed:
    K, N = b.shape
    planes, extremes = packed_planes(b, sides(M, N, K, NAMES[b.dtype], recipe)[1])
    return Packed(b, recipe, planes, extremes, version(b))


def _recipe(
    packed: Packed | None,
    schemes: tuple[Scheme, ...],
    size: tuple[int, int, int],
    dtype: str,
    workspace: int | None,
) -> Recipe | None:
    M, N, K = size
    if packed is None:
        recipe = recipe_for(schemes, M, N, K, dtype, workspace=workspace)
        if recipe is None and recipe_for(schemes, M, N, K, dtype) is None:
            raise TiercelValueError(_too_large(schemes, dtype))
        return recipe
    made = packed.recipe
    if (made.grid, _ordinary(made)) != _composed(schemes):
        raise TiercelValueError(
            f"b was packed for {made}, not for {' * '.join(map(str, schemes))}; pack it with the "
            "same scheme and levels"
        )
    needed = workspace_bytes(M, N, K, dtype, made, packed=True)
    return made if workspace is None or needed <= workspace else None


@lru_cache(maxsize=256)
def _composed(schemes: tuple[Scheme, ...]) -> tuple[tuple[int, int, int], int]:
    """Grid and rank of all levels; composing two levels takes milliseconds."""
    whole = reduce(tensor, schemes)
    return whole.grid, whole.rank


def _ordinary(recipe: Recipe) -> int:
    """Products of the schemes, not counting that a complex product takes three."""
    return recipe.products // (3 if recipe.inner.planes == 2 else 1)


def _too_large(schemes: tuple[Scheme, ...], dtype: object) -> str:
    return (
        f"{' * '.join(map(str, schemes))} for {dtype}: no split into an outer loop and at most "
        f"{MOST_PRODUCTS} products of {MOST_BLOCKS} blocks at once (complex: three for each; "
        "16-bit: all levels at once) exists; use fewer levels or smaller schemes"
    )


@lru_cache(maxsize=256)
def _limits(schemes: tuple[Scheme, ...], dtype: str, K: int) -> Guard:
    is_complex = dtype.startswith("complex")
    real = {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)
    return guard.limits(lower(reduce(tensor, schemes), is_complex=is_complex), real, K)


def _overlaps(out: Tensor, *inputs: Tensor | None) -> bool:
    """True when writing the result could change an operand before it was read for the last time."""
    memory = out.untyped_storage().data_ptr()
    return any(x is not None and x.untyped_storage().data_ptr() == memory for x in inputs)


def _folded(
    a: Tensor, b: Tensor, out: Tensor, c: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """One tall product instead of a batch with a common ``b``, where the strides allow a view."""
    if b.dim() > 2 or a.dim() == 2:
        return a, b, out, c
    try:
        folded = [None if x is None else x.view(-1, x.shape[-1]) for x in (a, out, c)]
    except RuntimeError:  # these strides need a copy
        return a, b, out, c
    tall, result, prior = folded
    assert tall is not None
    assert result is not None
    return tall, b, result, prior


def _shares_planes(b: Tensor, out: Tensor, recipe: Recipe) -> bool:
    """True when several products of a batch have one ``b`` whose planes fit the workspace."""
    repeated = all(stride == 0 for stride in b.stride()[:-2]) or b.dim() == 2
    return repeated and out.dim() > 2 and recipe.outer.plain


def _matrices(
    a: Tensor, b: Tensor, out: Tensor, c: Tensor | None
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor | None]]:
    """The 2-D products of a batch."""
    batch = out.shape[:-2]
    if not batch:
        yield a, b, out, c
        return
    a, b = a.expand(*batch, *a.shape[-2:]), b.expand(*batch, *b.shape[-2:])
    for i in itertools.product(*map(range, batch)):
        yield a[i], b[i], out[i], None if c is None else c[i]


def _call(
    a: Tensor,
    b: Tensor,
    out: Tensor,
    c: Tensor | None,
    alpha: float,
    beta: float,
    limits: Guard | None,
    recipe: Recipe,
    packed: Packed | None,
) -> steps.Call:
    layout = Layout.of
    return steps.Call(
        layout(a), layout(b), layout(out), None if c is None else layout(c), alpha, beta, limits,
        recipe, packed is not None, _multiprocessors(a.get_device()),
    )  # fmt: skip


@cache
def _multiprocessors(device: int) -> int:
    if device < 0:  # Triton's interpreter
        return 1
    return torch.cuda.get_device_properties(device).multi_processor_count
