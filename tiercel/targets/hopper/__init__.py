"""Hopper (H100, H200): our own tensor-core kernels, compiled at run time for sm_90a.

``gemm`` multiplies torch CUDA tensors, ``gemm_epilogue`` with a traced epilogue, ``grouped_gemm``
groups of rows by a matrix each, ``gemm_scaled`` float8 with scales, ``pack`` and ``prepare`` by a
scheme inside the kernel; ``available`` says whether a device can. ``config`` is what one compiled
kernel is, ``source`` prints it around ``kernels/``, ``launching`` compiles and starts it,
``operands`` are what it reads; ``products``, ``epilogues`` and ``fused`` are what is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tiercel.targets.hopper.config import Config, Tile
from tiercel.targets.hopper.launching.available import available

if TYPE_CHECKING:
    from tiercel.targets.hopper.epilogues.product import gemm_epilogue
    from tiercel.targets.hopper.fused.packed import pack
    from tiercel.targets.hopper.fused.product import prepare
    from tiercel.targets.hopper.products.grouped import grouped_gemm
    from tiercel.targets.hopper.products.product import gemm
    from tiercel.targets.hopper.products.scaled import gemm_scaled

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
    "gemm": "products.product",
    "gemm_epilogue": "epilogues.product",
    "gemm_scaled": "products.scaled",
    "grouped_gemm": "products.grouped",
    "pack": "fused.packed",
    "prepare": "fused.product",
}


def __getattr__(name: str) -> Any:
    # `available` is asked where nothing else is needed: do not load the rest for it.
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
