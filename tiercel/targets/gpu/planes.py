"""Launches: operand → planes, products → C, extremes of an operand, classical repair.

Operands are stand-ins (``launch.py``): nothing runs here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import triton.language as tl
from torch import Tensor

from tiercel.lower.blocking import ceil_div
from tiercel.lower.program import Program
from tiercel.lower.recipe import Guard
from tiercel.targets.gpu import guard as guards
from tiercel.targets.gpu.classical import classical
from tiercel.targets.gpu.combine import combination, combine_kernel
from tiercel.targets.gpu.launch import Launch
from tiercel.targets.gpu.operand import Operand, compute_type
from tiercel.targets.gpu.scale import growth_bits
from tiercel.targets.gpu.update import update, update_kernel

WARPS = 4
LANES = 64 if torch.version.hip else 32
REGISTERS = 128  # of 255, for values: addresses, masks and loads in flight take the rest


def tile(values: int, words: int, lanes: int = LANES) -> tuple[int, int]:
    """(rows, columns) of a thread block's tile when each thread holds ``values`` per element.

    One warp of ``lanes`` threads to a row; 16 bytes a thread along it if registers allow.
    ``words``: 4-byte registers of a value.

    >>> tile(16, 1, 32), tile(16, 2, 32), tile(64, 1, 32)
    ((4, 128), (4, 64), (4, 64))
    """
    per_thread = 4 // words
    while per_thread > 1 and per_thread * words * values > REGISTERS:
        per_thread //= 2
    return WARPS, lanes * per_thread


def combine(
    program: Program,
    which: str,
    sources: Sequence[tuple[Operand, float]],
    planes: Tensor,
    dtype: str,
    *,
    skip: frozenset[int] = frozenset(),
    scale: Tensor | None = None,
    record: Tensor | None = None,
) -> Iterator[Launch]:
    """Write the sums of operand ``which`` into ``planes`` (count, rows, cols), any one layout.

    Args:
        program: whose products' sums are formed, but for those in ``skip``.
        which: ``"a"`` or ``"b"``.
        sources: views that start where the sum's block starts, with coefficients, the first 1.
        planes: transposed memory exactly where the operand is seen transposed.
        dtype: name of the operand's dtype.
        skip: products without a plane.
        scale: extremes of the operand if it is to be scaled.
        record: extremes to raise on the way, with a single source.
    """
    view = sources[0][0]
    what = combination(
        program,
        which,
        sources=len(sources),
        skip=skip,
        transposed=view.transposed,
        conjugated=view.conjugated,
        scaled=scale is not None,
        measured=record is not None,
    )
    if not what.sums:
        return
    planes = planes.mT if view.transposed else planes
    _, height, width = planes.shape
    compute = compute_type(dtype)
    values = what.rows * what.cols * program.planes
    tiles = 1
    if what.measured == "cols":
        values, tiles = 2 * values, guards.SEGMENT // (2 * WARPS)
    rows, cols = tile(values, compute.primitive_bitwidth // 32)
    first, *others = sources
    yield Launch(
        combine_kernel(what), _tiles(height, width, rows * tiles, cols),
        first[0].data, *first[0].data.shape,
        *(x for view, coef in others for x in (view.data, *view.data.shape, coef)),
        *first[0].strides, planes, planes.stride(0), height, width,
        *(() if scale is None else (scale[2:], growth_bits(program, which))),
        *(() if record is None else (record,)),
        ROWS=rows, COLS=cols, TILES=tiles, SHORTEST=guards.SHORTEST, COMPUTE=compute,
        num_warps=WARPS,
    )  # fmt: skip


def finish(
    program: Program,
    products: Tensor,
    targets: Sequence[tuple[Operand, float, Operand, float]],
    dtype: str,
    *,
    scales: tuple[Tensor, int, Tensor, int] | None = None,
) -> Launch:
    """Write blocks of C: ``target = coef · block + beta · prior`` for each target.

    Args:
        program: whose products these are.
        products: (R, rows, cols), transposed memory exactly where C is seen transposed.
        targets: (where to, coef, prior, beta); the prior is seen in the target's orientation.
        dtype: name of the operands' dtype.
        scales: extremes and growth bits of A and B if they were scaled.
    """
    first = targets[0][0]
    what = update(
        program,
        tuple(beta != 0 for *_, beta in targets),
        transposed=first.transposed,
        scaled=scales is not None,
    )
    products = products.mT if first.transposed else products
    _, height, width = products.shape
    compute = compute_type(dtype)
    rows, cols = tile(what.rows * what.cols * program.planes, compute.primitive_bitwidth // 32)
    scale = () if scales is None else (scales[0][2:], scales[2][2:], scales[1], scales[3])
    return Launch(
        update_kernel(what), _tiles(height, width, rows, cols),
        products, products.stride(0), height, width,
        *(
            x
            for to, coef, prior, beta in targets
            for x in (
                to.data, *to.data.shape, coef,
                *((prior.data, *prior.strides, beta) if beta != 0 else ()),
            )
        ),
        *first.strides, *scale,
        ROWS=rows, COLS=cols, COMPUTE=compute, num_warps=WARPS,
    )  # fmt: skip


def measure(
    x: Operand, extremes: Tensor, dtype: str, *, along_rows: bool, peak: bool
) -> Iterator[Launch]:
    """Raise ``extremes`` (3 integers, zero at first) to those of ``x``; see ``guard.py``.

    ``along_rows``: segments run along the rows of the matrix (A), else along its columns (B).
    """
    compute = compute_type(dtype)
    rows, cols = x.data.shape
    for plane in (x.data, _imaginary(x)) if x.is_complex else (x.data,):
        yield Launch(
            guards.segment_means, _tiles(rows, cols, guards.SEGMENT, guards.SEGMENT),
            plane, rows, cols, *x.strides, extremes,
            ALONG_ROWS=along_rows != x.transposed, PEAK=peak,
            SEGMENT=guards.SEGMENT, SHORTEST=guards.SHORTEST,
            ROWS=16, COLS=guards.SEGMENT, COMPUTE=compute, BITS=bits_type(compute),
            num_warps=WARPS,
        )  # fmt: skip


def repair(
    a: Operand,
    b: Operand,
    c: Operand,
    prior: Operand,
    alpha: float,
    beta: float,
    extremes: tuple[Tensor, Tensor],
    limits: Guard,
    dtype: str,
    multiprocessors: int,
) -> Launch:
    """Overwrite C with the classical product if the guard refuses the operands."""
    compute = compute_type(dtype)
    (M, K), N = _matrix(a).shape, _matrix(b).shape[1]
    block = 32 if compute == tl.float64 or a.is_complex else 64
    tiles = ceil_div(M, block) * ceil_div(N, block)
    return Launch(
        classical, min(tiles, 4 * multiprocessors),
        a.data, b.data, c.data, prior.data, M, N, K,
        *_matrix(a).stride(), *_matrix(b).stride(), *_matrix(c).stride(),
        *_matrix(prior).stride(),
        alpha, beta, _sign(a), _sign(b), *extremes, limits.limit, limits.headroom,
        COMPLEX=a.is_complex, PRIOR=beta != 0, COMPUTE=compute, BLOCK=block, DEPTH=16,
        num_warps=WARPS,
    )  # fmt: skip


def bits_type(compute: tl.dtype) -> tl.dtype:
    """The integer of a float's size."""
    return tl.int64 if compute == tl.float64 else tl.int32


def extremes_dtype(dtype: str) -> torch.dtype:
    """Of the guard's records."""
    return torch.int64 if compute_type(dtype) == tl.float64 else torch.int32


def _tiles(height: int, width: int, rows: int, cols: int) -> int:
    return ceil_div(height, rows) * ceil_div(width, cols)


def _imaginary(x: Operand) -> Tensor:
    return torch.as_strided(x.data, x.data.shape, x.strides, x.data.storage_offset() + 1)


def _matrix(x: Operand) -> Tensor:
    return x.data.mT if x.transposed else x.data


def _sign(x: Operand) -> float:
    return -1.0 if x.conjugated else 1.0
