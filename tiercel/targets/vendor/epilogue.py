"""Named epilogues applied after the product, in place: the un-fused form of what kernels fuse."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tiercel.targets.vendor.erf import erfc

Array = NDArray[np.floating]

# Elements per step: the temporaries of one step (at most six of float64) stay inside a 2 MiB L2.
_STEP = 32768


def relu(x: Array) -> Array:
    """``max(x, 0)``; NaN stays NaN."""
    return np.maximum(x, 0)


def gelu(x: Array) -> Array:
    """``x Phi(x)`` with the exact normal distribution function (Hendrycks and Gimpel 2016).

    Through erfc, not ``1 + erf``: the latter cancels for negative x.
    """
    return 0.5 * x * erfc(x * -math.sqrt(0.5))


def gelu_tanh(x: Array) -> Array:
    """The tanh approximation of `gelu`; up to 4.7e-4 away from it, so a function of its own."""
    # Beyond |x| = 20 the tanh is +-1 in every dtype; clipping keeps the cube from overflowing.
    inner = np.clip(x, -20, 20)
    inner = math.sqrt(2 / math.pi) * (inner + 0.044715 * inner * inner * inner)
    return 0.5 * x * (1 + np.tanh(inner))


def silu(x: Array) -> Array:
    """``x sigmoid(x)``."""
    return x / (1 + np.exp(-x))


EPILOGUES: dict[str, Callable[[Array], Array]] = {
    "relu": relu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "silu": silu,
}


def apply_epilogue(c: NDArray, epilogue: str | None, bias: NDArray | None) -> None:
    """``c = epilogue(c + bias)`` in place; c (..., M, N) of any strides, bias (N,) of its dtype.

    Finite inputs raise no floating-point warning.
    """
    if c.size == 0:
        return
    rows = max(1, _STEP // c.shape[-1])
    # exp and products of tails may overflow or underflow on the way to a right, finite result.
    with np.errstate(over="ignore", under="ignore"):
        for batch in np.ndindex(c.shape[:-2]):
            matrix = c[batch]
            for start in range(0, matrix.shape[0], rows):
                step = matrix[start : start + rows]
                if bias is not None:
                    step += bias
                if epilogue is not None:
                    step[...] = EPILOGUES[epilogue](step)
