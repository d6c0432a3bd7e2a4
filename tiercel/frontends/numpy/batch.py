"""A batch of products: as one, as a loop over 2-D products, or as NumPy's own loop."""

from __future__ import annotations

from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from tiercel import counters
from tiercel.frontends.numpy.product import (
    Request,
    by_vendor,
    is_vendor,
    plan_of,
    run,
    unplanned,
)
from tiercel.frontends.numpy.repeated import remember
from tiercel.frontends.numpy.shapes import ProductShape, as_shared_matrix, merged_rows


def batched_product(
    a: NDArray, b: NDArray, out: NDArray | None, shape: ProductShape, request: Request
) -> NDArray:
    """The product of (..., M, K) and (..., K, N) in one accelerated dtype."""
    if request.options.scheme == "vendor" or 0 in (shape.work, *shape.batch):
        return by_vendor(a, b, out, request)
    if shape.batch:
        merged = _as_one_product(a, b, out, shape)
        if merged is not None:
            return _one_product(*merged, request).reshape(*shape.batch, shape.M, shape.N)
        return _batch(a, b, out, shape, request)
    return _one_product(a, b, out, request)


def _one_product(a: NDArray, b: NDArray, out: NDArray | None, request: Request) -> NDArray:
    (M, K), N = a.shape, b.shape[1]
    if request.options.scheme is None and _is_for_numpy(M, N, K, a.dtype, batched=False):
        return by_vendor(a, b, out, request)
    c = np.empty((M, N), a.dtype) if out is None else out
    plan = plan_of(a, b, c, request)
    remember(plan, a, b, c, request)
    run(plan, a, b, c, request)
    return c


def _batch(
    a: NDArray, b: NDArray, out: NDArray | None, shape: ProductShape, request: Request
) -> NDArray:
    """One planned product for each matrix of the batch, or all of them by NumPy."""
    small = _is_for_numpy(shape.M, shape.N, shape.K, a.dtype, batched=True)
    if request.options.scheme is None and small:
        return by_vendor(a, b, out, request)
    c = np.empty((*shape.batch, shape.M, shape.N), a.dtype) if out is None else out
    # Views with zero strides: nothing is repeated in memory.
    a = np.broadcast_to(a, shape.batch + a.shape[-2:])
    b = np.broadcast_to(b, shape.batch + b.shape[-2:])
    first = (0,) * len(shape.batch)
    plan = plan_of(a[first], b[first], c[first], request)
    if is_vendor(plan):
        start = perf_counter()
        by_vendor(a, b, c, request)
        counters.record(plan, perf_counter() - start)
        return c
    for index in np.ndindex(shape.batch):
        run(plan, a[index], b[index], c[index], request)
    return c


def _as_one_product(
    a: NDArray, b: NDArray, out: NDArray | None, shape: ProductShape
) -> tuple[NDArray, NDArray, NDArray | None] | None:
    """(batch..., M, K) @ (K, N) as one (batch M, K) @ (K, N), where views can say so."""
    matrix = as_shared_matrix(b)
    if matrix is None or a.shape[:-2] != shape.batch:
        return None
    rows = merged_rows(a)
    target = None if out is None else merged_rows(out)
    if rows is None or (out is not None and target is None):
        return None
    return rows, matrix, target


def is_never_planned(b: NDArray, shape: ProductShape, dtype: np.dtype) -> bool:
    """Whether a product with b and default options is one call of ``np.matmul``, on any machine."""
    if dtype.itemsize == 2 or shape.K == 1 or (shape.batch and as_shared_matrix(b) is not None):
        return False
    return _is_for_numpy(shape.M, shape.N, shape.K, dtype, batched=bool(shape.batch))


def _is_for_numpy(M: int, N: int, K: int, dtype: np.dtype, batched: bool) -> bool:
    """Whether NumPy multiplies an M × K by a K × N matrix, one or each of a batch, unplanned."""
    one, each = unplanned(dtype)
    work = M * N * K
    if work < (each if batched else one):
        return True
    # Matrix times vector reads each element once: the BLAS is at the memory's speed already.
    # NumPy's float16 is not, it multiplies one element at a time.
    return 1 in (M, N, K) and dtype.itemsize > 2
