"""Arrays of other libraries as tensors of the same memory, and results back as such arrays."""

from __future__ import annotations

import sys
from typing import Any

import torch

from tiercel.errors import TiercelTypeError
from tiercel.frontends.torch import grouped
from tiercel.frontends.torch import matmul as tensors_matmul
from tiercel.lower.epilogue import Given
from tiercel.options import Options


def matmul(a: Any, b: Any, out: Any, bias: Any, options: Options) -> Any:
    """``epilogue(a @ b + bias)`` of arrays, as an array of a's library; ``out`` is one, too."""
    if isinstance(options.epilogue, Given):
        options = options.with_epilogue(_given(options.epilogue))
    with torch.no_grad():
        made = tensors_matmul(as_tensor(a), as_tensor(b), _maybe(out), _maybe(bias), options)
    return _returned(made, a, out)


def grouped_matmul(a: Any, b: Any, offsets: Any, out: Any, given: Given | None) -> Any:
    """Rows of group g of a times b[g], of arrays as in ``matmul``."""
    operands = None if given is None else _given(given)
    with torch.no_grad():
        made = grouped.grouped_matmul(
            as_tensor(a), as_tensor(b), as_tensor(offsets), _maybe(out), operands
        )
    return _returned(made, a, out)


def as_tensor(x: Any) -> torch.Tensor:
    """A tensor of the same memory; torch's current stream waits for what fills it."""
    if isinstance(x, torch.Tensor):
        return x
    if hasattr(x, "__dlpack__"):
        return torch.from_dlpack(x)
    return torch.as_tensor(x, device="cuda")  # by __cuda_array_interface__


def like(x: torch.Tensor, example: Any) -> Any:
    """The tensor's memory as an array of the example's library.

    Raises ``TiercelTypeError`` where that library has no way to take it.
    """
    if isinstance(example, torch.Tensor):
        return x
    if hasattr(example, "__array_namespace__"):
        return example.__array_namespace__().from_dlpack(x)
    root = type(example).__module__.partition(".")[0]
    library: Any = sys.modules.get(root)
    if hasattr(library, "from_dlpack"):
        return library.from_dlpack(x)
    if hasattr(getattr(library, "cuda", None), "as_cuda_array"):  # Numba
        return library.cuda.as_cuda_array(x)
    raise TiercelTypeError(
        f"{root} has no from_dlpack to receive a result; pass torch.from_dlpack of a and b, or out"
    )


def _returned(made: Any, a: Any, out: Any) -> Any:
    if out is not None:
        like(made, out)  # the library's stream waits for torch's, which has written its memory
        return out
    if isinstance(made, dict):
        return {name: like(x, a) for name, x in made.items()}
    return like(made, a)


def _given(given: Given) -> Given:
    return Given(given.epilogue, {name: _operand(x) for name, x in given.operands.items()})


def _maybe(x: Any) -> Any:
    return None if x is None else as_tensor(x)


def _operand(x: Any) -> Any:
    return as_tensor(x) if hasattr(x, "__dlpack__") or hasattr(x, "__cuda_array_interface__") else x
