"""Hopper (H100, H200): our own tensor-core kernels, compiled at run time for sm_90a.

``gemm`` multiplies torch CUDA tensors, ``gemm_epilogue`` with a traced epilogue, ``grouped_gemm``
groups of rows by a matrix each, ``gemm_scaled`` float8 with scales, ``pack`` and ``prepare`` by a
scheme inside the kernel; ``available`` says whether a device can.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tiercel.targets.hopper.available import available
from tiercel.targets.hopper.config import Config, Tile

if TYPE_CHECKING:
    from tiercel.targets.hopper.fused_product import prepare
    from tiercel.targets.hopper.grouped import grouped_gemm
    from tiercel.targets.hopper.packed import pack
    from tiercel.targets.hopper.product import gemm
    from tiercel.targets.hopper.product_epilogue import gemm_epilogue
    from tiercel.targets.hopper.product_scaled import gemm_scaled

__all__ = [
    "Config",
    "Tile",
    "available",
    "gemm",
    "gemm_epilogue",
    "gemm_scaled",
    "grouped_gemm",
    "pack",
    "prepare",
]

_HOMES = {
    "gemm": "product",
    "gemm_epilogue": "product_epilogue",
    "gemm_scaled": "product_scaled",
    "grouped_gemm": "grouped",
    "pack": "packed",
    "prepare": "fused_product",
}


def __getattr__(name: str) -> Any:
    # `available` is asked where nothing else is needed: do not load the rest for it.
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
