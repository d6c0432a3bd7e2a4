"""Call ``cblas_sgemm`` and ``cblas_dgemm`` of a shared library through ctypes: MKL and BLIS."""

from __future__ import annotations

import ctypes
import ctypes.util
import sys
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path

import numpy as np

from tiercel.errors import TiercelRuntimeError

ROW_MAJOR, NO_TRANS, TRANS = 101, 111, 112
PACKED, B_MATRIX = 151, 162  # MKL only
ROUTINES = {
    "float32": ("cblas_sgemm", ctypes.c_float),
    "float64": ("cblas_dgemm", ctypes.c_double),
}


def open_library(path: str) -> ctypes.CDLL:
    """Load a shared library, with an error that names it."""
    try:
        return ctypes.CDLL(path)
    except OSError as problem:
        raise TiercelRuntimeError(f"cannot load the BLAS library {path}: {problem}") from None


def find_mkl() -> str | None:
    """Path of ``libmkl_rt`` from the ``mkl`` wheel, or its name if the system loader knows it."""
    try:
        files = metadata.files("mkl") or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name.startswith(("libmkl_rt.so", "libmkl_rt.dylib", "mkl_rt.")):
            return str(Path(str(file.locate())).resolve())
    return ctypes.util.find_library("mkl_rt")


def find_blis() -> str | None:
    """Name of a system BLIS, e.g. from Debian's ``libblis4-pthread``.

    The wheel named ``blis`` is no peer: it has no threads, and its 1.3.4 reached a third of the
    system's 0.9.0 on an AVX2 machine.
    """
    return ctypes.util.find_library("blis") if sys.platform != "win32" else None


def bind_gemm(
    library: ctypes.CDLL, a: np.ndarray, b: np.ndarray, out: np.ndarray
) -> Callable[[], object]:
    """A call that writes ``a @ b`` to ``out`` (C order); a and b are in C or Fortran order."""
    name, real = ROUTINES[out.dtype.name]
    gemm = getattr(library, name)
    gemm.restype = None
    trans_a, lda = _transposition(a)
    trans_b, ldb = _transposition(b)
    head = (*_ints(ROW_MAJOR, trans_a, trans_b), *_sizes(a, b))
    first = (real(1.0), _pointer(a), *_ints(lda))
    second = (_pointer(b), *_ints(ldb))
    third = (real(0.0), _pointer(out), *_ints(out.shape[1]))
    return partial(gemm, *head, *first, *second, *third)


def bind_packed_gemm(
    library: ctypes.CDLL, a: np.ndarray, b: np.ndarray, out: np.ndarray
) -> Callable[[], object]:
    """As `bind_gemm` with b packed now, once, by MKL's ``cblas_?gemm_pack``."""
    name, real = ROUTINES[out.dtype.name]
    pack, compute = getattr(library, f"{name}_pack"), getattr(library, f"{name}_compute")
    size = getattr(library, f"{name}_pack_get_size")
    size.restype = ctypes.c_size_t
    packed = np.empty(size(*_ints(B_MATRIX), *_sizes(a, b)), dtype=np.uint8)
    trans_a, lda = _transposition(a)
    trans_b, ldb = _transposition(b)
    source = (real(1.0), _pointer(b), *_ints(ldb), _pointer(packed))
    pack(*_ints(ROW_MAJOR, B_MATRIX, trans_b), *_sizes(a, b), *source)
    head = (*_ints(ROW_MAJOR, trans_a, PACKED), *_sizes(a, b))
    first, second = (_pointer(a), *_ints(lda)), (_pointer(packed), *_ints(ldb))
    third = (real(0.0), _pointer(out), *_ints(out.shape[1]))
    return partial(compute, *head, *first, *second, *third)


def _ints(*values: int) -> tuple[ctypes.c_int, ...]:
    return tuple(ctypes.c_int(value) for value in values)


def _sizes(a: np.ndarray, b: np.ndarray) -> tuple[ctypes.c_int, ...]:
    """M, N, K."""
    return _ints(a.shape[0], b.shape[1], a.shape[1])


def _pointer(x: np.ndarray) -> ctypes.c_void_p:
    return x.ctypes.data_as(ctypes.c_void_p)  # keeps the array alive, as a bare address would not


def _transposition(x: np.ndarray) -> tuple[int, int]:
    """CBLAS's transposition flag and leading dimension of ``x``, read as row-major."""
    if x.flags.c_contiguous:
        return NO_TRANS, x.shape[1]
    return TRANS, x.shape[0]
