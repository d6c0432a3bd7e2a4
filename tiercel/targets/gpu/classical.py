"""The classical product on the device, for the data that a scheme must not touch.

A persistent kernel whose thread blocks return at once when the guard has nothing against the data.
It is there to be right, not fast: ordinary inputs never run its loop.
"""

# Kernels have the syntax of Python, not its types.
# pyright: reportArgumentType=false
# pyright: reportInvalidTypeForm=false

from __future__ import annotations

import triton
import triton.language as tl

from tiercel.targets.gpu.guard import refused


@triton.jit
def classical(
    a, b, c, prior, M, N, K,
    a_row, a_col, b_row, b_col, c_row, c_col, prior_row, prior_col,
    alpha: tl.float64, beta: tl.float64, conj_a: tl.float64, conj_b: tl.float64,
    extremes_a, extremes_b, limit: tl.float64, headroom: tl.float64,
    COMPLEX: tl.constexpr, PRIOR: tl.constexpr, COMPUTE: tl.constexpr,
    BLOCK: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """``c = alpha · a · b + beta · prior`` if the guard refuses the operands, else nothing.

    Strides count real elements; the imaginary part of a complex element follows its real part.
    """
    tiles_n = tl.cdiv(N, BLOCK)
    tiles = tl.cdiv(M, BLOCK) * tiles_n
    if refused(extremes_a, extremes_b, limit, headroom, COMPUTE):
        scale = tl.cast(alpha, COMPUTE)
        share = tl.cast(beta, COMPUTE)
        for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
            row = tile // tiles_n * BLOCK + tl.arange(0, BLOCK)[:, None]
            col = tile % tiles_n * BLOCK + tl.arange(0, BLOCK)[None, :]
            at_a = a + row.to(tl.int64) * a_row
            at_b = b + col.to(tl.int64) * b_col
            at_c = row.to(tl.int64) * c_row + col.to(tl.int64) * c_col
            at_prior = row.to(tl.int64) * prior_row + col.to(tl.int64) * prior_col
            mask = (row < M) & (col < N)
            real = tl.zeros((BLOCK, BLOCK), COMPUTE)
            imag = tl.zeros((BLOCK, BLOCK), COMPUTE)
            for k0 in range(0, K, DEPTH):
                k_a = k0 + tl.arange(0, DEPTH)[None, :]
                k_b = k0 + tl.arange(0, DEPTH)[:, None]
                from_a = at_a + k_a.to(tl.int64) * a_col
                from_b = at_b + k_b.to(tl.int64) * b_row
                has_a = (row < M) & (k_a < K)
                has_b = (col < N) & (k_b < K)
                x = tl.load(from_a, mask=has_a, other=0.0)
                y = tl.load(from_b, mask=has_b, other=0.0)
                real = tl.dot(x, y, real, input_precision="ieee", out_dtype=COMPUTE)
                if COMPLEX:
                    x_imag = tl.load(from_a + 1, mask=has_a, other=0.0) * tl.cast(conj_a, COMPUTE)
                    y_imag = tl.load(from_b + 1, mask=has_b, other=0.0) * tl.cast(conj_b, COMPUTE)
                    real = tl.dot(-x_imag, y_imag, real, input_precision="ieee", out_dtype=COMPUTE)
                    imag = tl.dot(x, y_imag, imag, input_precision="ieee", out_dtype=COMPUTE)
                    imag = tl.dot(x_imag, y, imag, input_precision="ieee", out_dtype=COMPUTE)
            value = scale * real
            if PRIOR:
                value += share * tl.load(prior + at_prior, mask=mask, other=0.0).to(COMPUTE)
            tl.store(c + at_c, value.to(c.dtype.element_ty), mask=mask)
            if COMPLEX:
                value = scale * imag
                if PRIOR:
                    value += share * tl.load(prior + 1 + at_prior, mask=mask, other=0.0)
                tl.store(c + 1 + at_c, value.to(c.dtype.element_ty), mask=mask)
