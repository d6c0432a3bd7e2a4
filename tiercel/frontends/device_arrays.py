"""Arrays of other libraries on an H100 or H200 (CuPy, Numba, …): multiplied as tensors, in place.

They come by DLPack, without a copy and in the order of both libraries' current streams, or by
``__cuda_array_interface__``, which says nothing of streams. Results return in the same way. On any
other device, or without PyTorch, their own product is left to them; with ``target="hopper"`` an
error says why.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from tiercel.errors import TiercelRuntimeError, TiercelTypeError
from tiercel.frontends import numpy
from tiercel.options import Options
from tiercel.targets import hopper
from tiercel.targets.hopper.launching.available import device_of_address

#: What torch multiplies on a GPU.
DTYPES = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")

CUDA = (2, 13)  # DLPack's kDLCUDA and kDLCUDAManaged


def matmul(a: Any, b: Any, out: Any, bias: Any, options: Options) -> Any:
    """``epilogue(a @ b + bias)``; see ``tiercel.matmul``."""
    reason = _why_theirs(a, b)
    if reason:
        _refuse(options, reason)
        return numpy.matmul(a, b, out, bias, options)
    from tiercel.frontends.torch.tensors import foreign

    return foreign.matmul(a, b, out, bias, options)


def linear(x: Any, w: Any, bias: Any, out: Any, options: Options) -> Any:
    """``epilogue(x @ w.T + bias)``; see ``tiercel.linear``."""
    reason = _why_theirs(x, w)
    if reason:
        _refuse(options, reason)
        return numpy.linear(x, w, bias, out, options)
    return matmul(x, w.T, out, bias, options)


def grouped_matmul(a: Any, b: Any, offsets: Any, out: Any, given: Any) -> Any:
    """Rows of group g of a times b[g]; see ``tiercel.grouped_matmul``."""
    reason = _why_theirs(a, b)
    if reason:
        raise TiercelTypeError(
            f"grouped products of such arrays run on an H100 or H200: {reason}; pass NumPy arrays "
            "or PyTorch tensors"
        )
    from tiercel.frontends.torch.tensors import foreign

    return foreign.grouped_matmul(a, b, offsets, out, given)


def pack(b: Any, rows: int | None, options: Options) -> Any:
    """See ``tiercel.pack``: such arrays have no packed form."""
    raise TiercelTypeError(
        f"b is a {type(b).__name__}; allowed: NumPy arrays and PyTorch tensors"
        " (torch.from_dlpack makes one of it without a copy)"
    )


def has_epilogues(a: Any, b: Any) -> bool:
    """Whether the product of a and b has epilogues: real floating matrices of a Hopper have."""
    return not _why_theirs(a, b) and "float" in str(a.dtype)


def _refuse(options: Options, reason: str) -> None:
    if options.target is not None:
        raise TiercelRuntimeError(
            f"target={options.target!r} cannot run: {reason}. Leave target out: the arrays' own "
            "library then multiplies"
        )
    if options.batch_invariant or options.verify:
        name = "batch_invariant" if options.batch_invariant else "verify"
        raise TiercelTypeError(f"{name}=True does not work here: {reason}; leave it out")


def _why_theirs(a: Any, b: Any) -> str:
    """Why the arrays' own library multiplies; "" if the kernels may."""
    _check("a", a)
    _check("b", b)
    for name, x in (("a", a), ("b", b)):
        device = device_of(x)
        if device is None:
            return f"{name} is a {type(x).__name__} that is not on a CUDA device"
        reason = hopper.available(device)
        if reason is not None:
            return reason
        if x.ndim < 2 or 0 in x.shape:
            return f"{name} has shape {tuple(x.shape)}"
    if str(a.dtype) != str(b.dtype) or str(a.dtype) not in DTYPES:
        return f"a is {a.dtype} and b is {b.dtype}"
    return "" if find_spec("torch") else "PyTorch, which keeps the memory, is not installed"


def _check(name: str, x: Any) -> None:
    """Raise for what brings memory and does not tell what it holds: not even NumPy could say."""
    brings = hasattr(x, "__dlpack_device__") or hasattr(x, "__cuda_array_interface__")
    if brings and not all(hasattr(x, attribute) for attribute in ("shape", "ndim", "dtype")):
        raise TiercelTypeError(
            f"{name} is a {type(x).__name__} without shape, ndim and dtype; allowed: an array that "
            "has them (torch.as_tensor or torch.from_dlpack makes one without a copy)"
        )


def device_of(x: Any) -> int | None:
    """Number of the CUDA device that holds an array; None for one that is elsewhere.

    >>> import numpy as np
    >>> device_of(np.zeros(1)) is None
    True
    """
    if hasattr(x, "__dlpack_device__"):
        kind, device = x.__dlpack_device__()
        return int(device) if int(kind) in CUDA else None
    if not hasattr(x, "__cuda_array_interface__"):
        return None
    return device_of_address(x.__cuda_array_interface__["data"][0])
