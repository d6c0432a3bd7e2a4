"""Packages that only the benchmark's extras need."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from tiercel.errors import TiercelRuntimeError


def require(module: str, purpose: str, install: str = "'tiercel[bench]'") -> ModuleType:
    """Import ``module``, or say in one line what pip has to install.

    >>> require("json", "results").__name__
    'json'
    """
    try:
        return import_module(module)
    except ModuleNotFoundError:
        package = module.partition(".")[0]
        raise TiercelRuntimeError(
            f"{purpose} needs {package}, which is not installed; pip install {install}"
        ) from None
