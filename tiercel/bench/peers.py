"""The libraries that are compared, each with a name, a version, a thread setter and a product.

They are imported when opened, which happens in the worker process that measures them.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module, metadata
from typing import Any, Protocol

import numpy as np

from tiercel.bench import cblas
from tiercel.bench.blas_info import loaded_blas, torch_backend
from tiercel.bench.case import Case
from tiercel.bench.operands import Operands

TIERCEL, NUMPY = "tiercel", "numpy"


class Library(Protocol):
    """A matrix product that can be timed."""

    name: str
    version: str

    def set_threads(self, threads: int) -> None:
        """Use this many threads from now on."""
        ...

    def bind(self, case: Case, operands: Operands) -> Callable[[], object]:
        """A call without arguments that computes ``operands.out = operands.a @ operands.b``."""
        ...


class NumPy:
    """``np.matmul`` and the BLAS that NumPy was built with."""

    name = NUMPY

    def __init__(self) -> None:
        self.version = f"{np.__version__} ({loaded_blas('numpy')})"

    def set_threads(self, threads: int) -> None:
        """Its BLAS reads OMP_NUM_THREADS and its like, which the worker was started with."""

    def bind(self, case: Case, operands: Operands) -> Callable[[], object]:
        a, b, out = operands.a, operands.b, operands.out
        return lambda: np.matmul(a, b, out=out)


class SciPy:
    """``scipy.linalg.blas``; SciPy brings a BLAS of its own."""

    name = "scipy"

    def __init__(self) -> None:
        self.blas = import_module("scipy.linalg.blas")
        self.version = f"{metadata.version('scipy')} ({loaded_blas('scipy')})"

    def set_threads(self, threads: int) -> None:
        """As NumPy: by environment."""

    def bind(self, case: Case, operands: Operands) -> Callable[[], object]:
        gemm = {"float32": self.blas.sgemm, "float64": self.blas.dgemm}[case.dtype]
        # Fortran order throughout: Cᵀ = Bᵀ Aᵀ, where the transpose of a C-ordered array is free.
        first, trans_first = _fortran(operands.b)
        second, trans_second = _fortran(operands.a)
        out = operands.out.T
        return lambda: gemm(
            1.0, first, second, 0.0, out, trans_first, trans_second, overwrite_c=True
        )


class Torch:
    """``torch.mm`` on the CPU: MKL or oneDNN, whichever torch was built with."""

    name = "torch"

    def __init__(self) -> None:
        self.torch = import_module("torch")
        self.version = f"{self.torch.__version__} ({torch_backend(self.torch)})"

    def set_threads(self, threads: int) -> None:
        self.torch.set_num_threads(threads)

    def bind(self, case: Case, operands: Operands) -> Callable[[], object]:
        torch = self.torch
        a, b, out = (torch.from_numpy(x) for x in (operands.a, operands.b, operands.out))
        return lambda: torch.mm(a, b, out=out)


class MKL:
    """Intel MKL from the ``mkl`` wheel or the system. It too can pack a static B once, and does."""

    name = "mkl"

    def __init__(self) -> None:
        self.library = cblas.open_library(cblas.find_mkl() or "mkl_rt")
        text = cblas.ctypes.create_string_buffer(200)
        self.library.mkl_get_version_string(text, 200)
        words = text.value.decode().split()
        version = words[words.index("Version") + 1] if "Version" in words else "unknown"
        self.version = version.removesuffix("-Product")

    def set_threads(self, threads: int) -> None:
        self.library.MKL_Set_Num_Threads(threads)

    def bind(self, case: Case, operands: Operands) -> Callable[[], object]:
        bind = cblas.bind_packed_gemm if case.static_b else cblas.bind_gemm
        return bind(self.library, operands.a, operands.b, operands.out)


class BLIS:
    """BLIS from the system, e.g. Debian's ``libblis4-pthread``."""

    name = "blis"

    def __init__(self) -> None:
        self.library = cblas.open_library(cblas.find_blis() or "blis")
        self.library.bli_info_get_version_str.restype = cblas.ctypes.c_char_p
        self.version = self.library.bli_info_get_version_str().decode()

    def set_threads(self, threads: int) -> None:
        self.library.bli_thread_set_num_threads(cblas.ctypes.c_int64(threads))

    def bind(self, case: Case, operands: Operands) -> Callable[[], object]:
        return cblas.bind_gemm(self.library, operands.a, operands.b, operands.out)


class Tiercel:
    """The library under test."""

    name = TIERCEL

    def __init__(self) -> None:
        self.tiercel = import_module("tiercel")
        self.version = getattr(self.tiercel, "__version__", "unknown")

    def set_threads(self, threads: int) -> None:
        """By environment, as NumPy's. An argument of each call would be checked by each call."""

    def bind(self, case: Case, operands: Operands) -> Callable[[], object]:
        matmul = self.tiercel.matmul
        a, b, out = operands.a, operands.b, operands.out
        second = self.tiercel.pack(b, rows=case.m) if case.static_b else b
        options = matmul_options(case)
        if not options:  # as callers write it: unpacking nothing takes microseconds, too
            return lambda: matmul(a, second, out=out)
        return lambda: matmul(a, second, out=out, **options)


def matmul_options(case: Case) -> dict[str, Any]:
    """The keyword arguments of `tiercel.matmul` that a case asks for, beside the threads."""
    asked = {"workspace": case.workspace, "scheme": case.scheme, "accuracy": case.accuracy}
    return {k: v for k, v in asked.items() if v is not None}


def _fortran(x: np.ndarray) -> tuple[np.ndarray, int]:
    """``x`` or its transpose in Fortran order, and the flag by which gemm sees xᵀ."""
    return (x.T, 0) if x.flags.c_contiguous else (x, 1)
