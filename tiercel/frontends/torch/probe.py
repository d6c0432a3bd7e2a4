"""Was a product of tensors right? Freivalds' probe on the device, without waiting for it.

C·x is compared with A·(B·x) for a random x, as ``frontends/numpy/probe.py`` does, whose constants
hold here too. What a row's residual is relative to must not take another pass over the operands:
entries of B·x have the size of B's rows, and A·Z for a few random columns Z, formed in the same
pass as A·(B·x), that of A's, whether the terms of C cancel or not.
"""

from __future__ import annotations

import torch

from tiercel.frontends.numpy.probe import PROBE_ROUNDINGS, PRODUCT_ROUNDINGS, SIGMAS

#: RMS error of rounding a result of normal data to 16 bits, in units of u = ε/2.
RESULT_ROUNDINGS = 0.43

#: Columns of Z: by few of them a row would be taken for small now and then.
SIZING = 7

#: Columns of a skinny 16-bit product: what the vendor's kernels load at once.
COLUMNS = 8

#: 16-bit pieces that hold a float32 number.
PIECES = 3


def exceeded(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, bias: torch.Tensor | None, growth: float
) -> torch.Tensor:
    """Whether C (..., M, N) is not A (..., M, K) · B (..., K, N) + bias (N,): a bool on the device.

    ``growth``: how much larger than the classical product's the rounding errors may be, as in an
    accuracy class. Rows where A·(B·x) is not finite are not judged. One dtype for all.

    >>> a, b = torch.randn(2, 300, 300)
    >>> exceeded(a, b, a @ b, None, 1.0).item()
    False
    >>> exceeded(a, b, (a @ b).index_fill(0, torch.tensor([7]), 1.0), None, 8.0).item()
    True
    """
    x, z = _random(a, b.shape[-1], 1), _random(a, a.shape[-1], SIZING)
    y = _times(b, x)
    both = _times(a, torch.cat([y, z.expand(*y.shape[:-1], SIZING)], dim=-1))
    expected, of_a = both[..., 0], both[..., 1:]
    if bias is not None:
        expected = expected + torch.dot(bias.to(x.dtype), x[:, 0])
    residual = (_times(c, x)[..., 0] - expected).abs()
    terms = of_a.abs().square().mean(-1) * y.abs().square().mean((-2, -1)).unsqueeze(-1)
    squares = expected.abs().square() + terms
    judged = squares.isfinite()
    mean = torch.where(judged, squares, 0.0).mean(-1, keepdim=True)
    allowed = tolerance(a.dtype, growth) * (squares + mean).sqrt()
    return (judged & ~(residual <= allowed + smallest(a, b))).any()


def _random(like: torch.Tensor, *size: int) -> torch.Tensor:
    """Numbers of random sign and size that 16 bits hold, in the dtype that the probe computes in.

    With ±1 the entries of an even number of equal errors in a row would cancel now and then.
    """
    real = torch.float64 if like.dtype in (torch.float64, torch.complex128) else torch.float32
    x = torch.empty(size, dtype=real, device=like.device).uniform_(-1, 1)
    x = x + 0.5 * x.sign()
    return x.to(like.dtype).float() if like.dtype.itemsize == 2 else x.to(like.dtype)


def _times(matrix: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The product of a matrix (..., m, n) and a few columns (..., n, count)."""
    if matrix.dtype.itemsize > 2:
        return torch.matmul(matrix, x)
    if not matrix.is_cuda:
        return torch.matmul(matrix.float(), x)
    return _times_16_bit(matrix, x)


def _times_16_bit(matrix: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """As `_times`, x in float32: as a sum of 16-bit pieces, multiplied into float32."""
    scale = 1.0
    if matrix.dtype is torch.float16:  # whose range is short
        scale = x.abs().amax((-2, -1), keepdim=True).clamp_min(1e-30)
    rest, count = x / scale, x.shape[-1]
    pieces = []
    for _ in range(PIECES):
        pieces.append(rest.to(matrix.dtype))
        rest = rest - pieces[-1].float()
    padding = x.new_zeros((*x.shape[:-1], -PIECES * count % COLUMNS), dtype=matrix.dtype)
    skinny = torch.cat([*pieces, padding], dim=-1)
    if matrix.dim() == 2:
        skinny = skinny.expand(matrix.shape[-1], skinny.shape[-1])
        found = torch.mm(matrix, skinny, out_dtype=torch.float32)
    else:
        skinny = skinny.expand(*matrix.shape[:-2], matrix.shape[-1], skinny.shape[-1])
        found = torch.bmm(matrix, skinny, out_dtype=torch.float32)
    parts = found[..., : PIECES * count].unflatten(-1, (PIECES, count))
    return parts.sum(-2) * scale


def smallest(a: torch.Tensor, b: torch.Tensor) -> float:
    """What a row's residual may be where everything is next to nothing: it is rounded to zero."""
    compute = torch.float64 if a.dtype in (torch.float64, torch.complex128) else torch.float32
    return torch.finfo(compute).tiny * a.shape[-1] * b.shape[-1] ** 0.5


def tolerance(dtype: torch.dtype, growth: float) -> float:
    """Most that a row's residual may be, relative to what it would be in the mean (RMS)."""
    unit = torch.finfo(dtype).eps / 2
    if dtype.itemsize == 2:  # the rounding of the result is nearly all of the error
        return SIGMAS * (growth * RESULT_ROUNDINGS * unit + PROBE_ROUNDINGS * 2**-24)
    return SIGMAS * (growth * PRODUCT_ROUNDINGS + PROBE_ROUNDINGS) * unit
