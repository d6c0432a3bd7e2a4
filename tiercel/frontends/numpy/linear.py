"""``linear`` of NumPy arrays: a product with a transposed weight and a bias."""

from __future__ import annotations

from typing import Any

from tiercel.errors import TiercelValueError
from tiercel.frontends.numpy.matmul import matmul
from tiercel.frontends.numpy.operands import as_plain_array
from tiercel.frontends.numpy.packed import Packed
from tiercel.options import Options


def linear(x: Any, w: Any, bias: Any, out: Any, options: Options) -> Any:
    """``epilogue(x @ w.T + bias)``; see ``tiercel.linear``."""
    if type(w) is Packed:
        return matmul(x, w, out, bias, options)
    plain = as_plain_array(w)
    weight = w if plain is None else plain
    if weight.ndim != 2:
        raise TiercelValueError(
            f"w has {weight.ndim} axes; allowed: 2, (N, K), one row per output feature"
        )
    inner = getattr(x, "shape", ())[-1:]  # of what is no array yet ``matmul`` will tell
    if inner and inner[0] != weight.shape[1]:
        raise TiercelValueError(
            f"inner sizes differ: the last axis of x has {inner[0]} elements, that of w "
            f"{weight.shape[1]}; they must be equal, since w is (N, K), one row per output feature"
        )
    return matmul(x, weight.T, out, bias, options)
