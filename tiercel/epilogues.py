"""What epilogues are written with, and the ready-made ones.

`tiercel.epilogue` is the decorator; see ``docs/epilogues.md``. A ready-made epilogue called on
traced values becomes part of the epilogue being written.

>>> import tiercel
>>> from tiercel.epilogues import relu
>>> @tiercel.epilogue
... def leaky(acc, residual, slope=0.1):
...     return relu(acc) - slope * relu(-acc) + residual
>>> print(leaky)
leaky(acc, residual, slope=0.1)
  out = maximum(acc, 0) - slope * maximum(-acc, 0) + residual
"""

from tiercel.lower.epilogue.library import (
    bias,
    clamp,
    cross_entropy,
    dequantise,
    geglu,
    gelu,
    gelu_tanh,
    relu,
    residual,
    residual_rms,
    rms_apply,
    rms_statistics,
    rope,
    scale,
    silu,
    swiglu,
)
from tiercel.lower.epilogue.vocabulary import (
    cast,
    clip,
    column_index,
    column_max,
    column_sum,
    erf,
    exp,
    interleave,
    log,
    maximum,
    minimum,
    normal_cdf,
    pairs,
    pick,
    repeat_columns,
    row_logsumexp,
    row_max,
    row_sum,
    rsqrt,
    sigmoid,
    sqrt,
    tanh,
    where,
)

__all__ = [
    "bias", "cast", "clamp", "clip", "column_index", "column_max", "column_sum",
    "cross_entropy", "dequantise", "erf", "exp", "geglu", "gelu", "gelu_tanh", "interleave",
    "log", "maximum", "minimum", "normal_cdf", "pairs", "pick", "relu", "repeat_columns",
    "residual", "residual_rms", "rms_apply", "rms_statistics", "rope", "row_logsumexp",
    "row_max", "row_sum", "rsqrt", "scale", "sigmoid", "silu", "sqrt", "swiglu", "tanh",
    "where",
]  # fmt: skip
