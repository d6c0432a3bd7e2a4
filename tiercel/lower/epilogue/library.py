"""Ready-made epilogues. Each is short because composing them is calling them.

Formulas: relu to swiglu as in Hendrycks and Gimpel 2016 and Shazeer 2020; rotary embedding as in Su
et al. 2021 on adjacent columns; row statistics as in CODA (arXiv 2605.19269).
"""

from __future__ import annotations

from typing import Any

from tiercel.lower.epilogue.trace import epilogue
from tiercel.lower.epilogue.vocabulary import (
    clip,
    column_index,
    interleave,
    maximum,
    normal_cdf,
    pairs,
    pick,
    repeat_columns,
    row_logsumexp,
    row_sum,
    rsqrt,
    sigmoid,
    where,
)


@epilogue(bias="row")
def bias(acc: Any, bias: Any) -> Any:
    """``acc + bias``: one value for each column."""
    return acc + bias


@epilogue
def relu(acc: Any) -> Any:
    """``max(acc, 0)``; NaN stays NaN."""
    return maximum(acc, 0.0)


@epilogue
def gelu(acc: Any) -> Any:
    """``acc · Φ(acc)`` with the exact normal distribution function."""
    return acc * normal_cdf(acc)


@epilogue
def gelu_tanh(acc: Any) -> Any:
    """The tanh approximation of `gelu`.

    ``(1 + tanh(u)) / 2`` is ``sigmoid(2u)``, which keeps its accuracy for negative u; 2·√(2/π) is
    the first constant.
    """
    return acc * sigmoid(1.5957691216057308 * acc * (1.0 + 0.044715 * (acc * acc)))


@epilogue
def silu(acc: Any) -> Any:
    """``acc · sigmoid(acc)``."""
    return acc * sigmoid(acc)


@epilogue
def swiglu(acc: Any) -> Any:
    """``silu(gate) · up`` of columns gate₀ up₀ gate₁ up₁ …: N columns to N/2."""
    gate, up = pairs(acc)
    return silu(gate) * up


@epilogue
def geglu(acc: Any) -> Any:
    """``gelu(gate) · up`` of columns gate₀ up₀ gate₁ up₁ …: N columns to N/2."""
    gate, up = pairs(acc)
    return gelu(gate) * up


@epilogue(residual="tile")
def residual(acc: Any, residual: Any) -> Any:
    """``acc + residual``."""
    return acc + residual


@epilogue
def scale(acc: Any, scale: Any) -> Any:
    """``acc · scale``: a number, or a row, column or tile of factors."""
    return acc * scale


@epilogue(scale_a="column", scale_b="row")
def dequantise(acc: Any, scale_a: Any, scale_b: Any) -> Any:
    """``acc · scale_a · scale_b``: factors of the rows of A and of the columns of B."""
    return acc * scale_a * scale_b


@epilogue(low="scalar", high="scalar")
def clamp(acc: Any, low: Any, high: Any) -> Any:
    """acc, but not below ``low`` or above ``high``."""
    return clip(acc, low, high)


@epilogue
def rope(acc: Any, cos: Any, sin: Any, rotated: Any = float("inf")) -> Any:
    """Rotary embedding: each pair of adjacent columns turned by its angle.

    ``cos`` and ``sin`` are (M, D/2) for heads of D columns, and serve every head. Columns from
    ``rotated`` on stay as they are (the values of a fused query-key-value product).
    """
    even, odd = pairs(acc)
    cos, sin = repeat_columns(cos, even), repeat_columns(sin, even)
    turned = interleave(even * cos - odd * sin, odd * cos + even * sin)
    return where(column_index(acc) < rotated, turned, acc)


@epilogue
def rms_statistics(acc: Any) -> Any:
    """The product, and the sum of squares of each row for `rms_apply` in a later product."""
    return {"out": acc, "sum_of_squares": row_sum(acc * acc)}


@epilogue(residual="tile", gamma="row")
def residual_rms(acc: Any, residual: Any, gamma: Any) -> Any:
    """The residual stream, its normalised-up-to-a-row-factor form, and its row statistics.

    ``hidden = acc + residual`` is stored for the next residual; ``out = hidden · gamma`` is the
    operand of the next product, whose `rms_apply` supplies the missing factor of each row.
    """
    hidden = acc + residual
    return {"out": hidden * gamma, "hidden": hidden, "sum_of_squares": row_sum(hidden * hidden)}


@epilogue(sum_of_squares="column", width="scalar")
def rms_apply(acc: Any, sum_of_squares: Any, width: Any, eps: Any = 1e-6) -> Any:
    """``acc / sqrt(sum_of_squares / width + eps)``: the row factor of RMSNorm after a product.

    A factor of each row commutes with the product, so it need not be known before it. ``width`` is
    the number of columns that the squares were summed over.
    """
    return acc * rsqrt(sum_of_squares / width + eps)


@epilogue(target="column")
def cross_entropy(acc: Any, target: Any) -> Any:
    """What a loss needs of the logits, without storing them; ``target`` (M, 1) integers.

    The loss of a row is ``lse - picked``. The derivative computes the logits again (its accumulator
    is ``acc``); its ``d_lse`` and ``d_picked`` are the loss's gradients with respect to both.
    """
    return {"lse": row_logsumexp(acc), "picked": pick(acc, target)}
