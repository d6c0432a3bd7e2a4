"""The routines of the BLAS that NumPy is linked with, and how ``np.matmul`` calls them."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from tiercel.targets.cpu.exceptions import WARNED

#: Names in the BLAS of NumPy's wheels, whose integers have 64 bits.
NAMES = {"float32": "scipy_cblas_sgemm64_", "float64": "scipy_cblas_dgemm64_"}

#: What tells how many threads that BLAS may use.
LIMIT = "scipy_openblas_get_num_threads64_"

OF_C = "feclearexcept", "fetestexcept", "clock_gettime"

#: `call_of` where NumPy does anything else than call gemm on the operands as they are.
BY_NUMPY = 0, 0, 0, 0, 0

#: ``CBLAS_TRANSPOSE``.
NO_TRANS, TRANS = 111, 112


@dataclass(frozen=True)
class Routines:
    """Addresses of C functions: of BLAS by dtype, its limit of threads, and of C's library.

    ``warned``: the bits that exceptions are asked for. ``threads()``: as many as BLAS may use.
    """

    gemm: dict[np.dtype, int]
    thread_limit: int
    clear_except: int
    test_except: int
    clock: int
    warned: int
    threads: Callable[[], int]


@cache
def routines() -> Routines | None:
    """Those of this process; None where NumPy has another BLAS than its wheels for Linux have."""
    try:
        # Symbols of what an extension is linked with are found through its own handle.
        numpys = ctypes.CDLL(np._core._multiarray_umath.__file__)  # pyright: ignore
        gemm = {np.dtype(name): _address(numpys, symbol) for name, symbol in NAMES.items()}
        limit, clear, test, clock = (_address(numpys, name) for name in (LIMIT, *OF_C))
        # Called with the GIL: there is nothing to wait for.
        threads = ctypes.PYFUNCTYPE(ctypes.c_int)(limit)
        return Routines(gemm, limit, clear, test, clock, WARNED[platform.machine()], threads)
    except (AttributeError, OSError, KeyError):
        return None


def _address(library: ctypes.CDLL, name: str) -> int:
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0


def call_of(blas: Routines, a: NDArray, b: NDArray) -> tuple[int, int, int, int, int]:
    """How ``np.matmul`` multiplies matrices like a and b, or `BY_NUMPY`.

    Address of the routine, then transposition and leading dimension of each.
    """
    gemm = blas.gemm.get(a.dtype) if a.dtype is b.dtype else None
    if gemm is None or a.dtype is not np.dtype(a.dtype.char) or min(*a.shape, *b.shape) < 2:
        return BY_NUMPY
    form_a, form_b = _form(a), _form(b)
    if form_a is None or form_b is None:
        return BY_NUMPY
    return gemm, *form_a, *form_b


def _form(x: NDArray) -> tuple[int, int] | None:
    """Transposition and leading dimension by which BLAS reads x row by row; None: it cannot."""
    for transposed, y in ((NO_TRANS, x), (TRANS, x.T)):
        leading, rest = divmod(y.strides[0], y.itemsize)
        if y.strides[1] == y.itemsize and not rest and y.shape[1] <= leading < 1 << 31:
            return transposed, leading
    return None
