"""What follows a product: a bias and a named epilogue, in place or traced for the kernel."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch


def finish(out: torch.Tensor, bias: torch.Tensor | None, epilogue: str | None) -> None:
    """``out = epilogue(out + bias)`` in place."""
    if bias is not None:
        out.add_(bias)
    if epilogue is not None:
        _IN_PLACE[epilogue](out)


_IN_PLACE = {
    "relu": torch.relu_,
    "gelu": torch._C._nn.gelu_,
    "gelu_tanh": lambda out: torch._C._nn.gelu_(out, approximate="tanh"),
    "silu": torch._C._nn.silu_,
}


@cache
def traced(name: str | None, biased: bool) -> Any:
    """The traced form of a named epilogue, after a bias if there is one."""
    from tiercel.lower.epilogue import epilogue, library

    function = None if name is None else getattr(library, name)
    if not biased:
        return function
    if function is None:
        return library.bias

    def with_bias(acc: Any, bias: Any) -> Any:
        return function(acc + bias)

    with_bias.__name__ = with_bias.__qualname__ = f"bias_{name}"
    return epilogue(bias="row")(with_bias)
