"""A tensor's memory as a NumPy array that leaves the tensor as it was; memory of our own.

``Tensor.numpy`` marks a storage as one that may never be resized again, and FSDP frees the weights
that it has gathered by resizing their storage to nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

#: NumPy has no bfloat16; kernels read addresses and strides, so any type of 2 bytes will do.
_TYPES = {
    torch.float16: "<f2", torch.bfloat16: "<i2", torch.float32: "<f4", torch.float64: "<f8",
    torch.complex64: "<c8", torch.complex128: "<c16",
}  # fmt: skip


class _Memory:
    """Owner of an array's memory: keeps the tensor alive as long as the array."""

    def __init__(self, x: torch.Tensor) -> None:
        self.tensor = x
        size = x.element_size()
        self.__array_interface__: dict[str, Any] = {
            "data": (x.data_ptr(), False),
            "shape": tuple(x.shape),
            "strides": tuple(stride * size for stride in x.stride()),
            "typestr": _TYPES[x.dtype],
            "version": 3,
        }


def as_array(x: torch.Tensor) -> np.ndarray:
    """x's own memory, copied only to resolve a lazy conjugation or negation.

    x is of a dtype of the kernels; bfloat16 comes as int16.

    >>> as_array(torch.ones(2, 3).t()).strides
    (4, 12)
    """
    return np.asarray(_Memory(x.detach().resolve_conj().resolve_neg()))


def kept_on_host(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Zeros that stay from call to call, and that a GPU may copy to without waiting.

    Whatever the first call finds: a default device of the user's, or inference mode, whose tensors
    could not be written outside of it.
    """
    with torch.inference_mode(False):
        return torch.zeros(shape, dtype=dtype, device="cpu", pin_memory=torch.cuda.is_available())
