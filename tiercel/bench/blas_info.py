"""Which BLAS a loaded package runs on, in a few words for a caption."""

from __future__ import annotations

import re
from types import ModuleType

import numpy as np
from threadpoolctl import threadpool_info


def loaded_blas(package: str) -> str:
    """Name, version and chosen core type of the BLAS that ``package`` brought, as far as known.

    The core type shows a wrongly pinned OpenBLAS. A BLAS that threadpoolctl does not know, such as
    Apple's, is named as NumPy's build recorded it.
    """
    for pool in loaded_pools():
        if f"{package}.libs" in pool["filepath"] or f"/{package}/" in pool["filepath"]:
            return describe_pool(pool)
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"] if package == "numpy" else {}
    return f"{blas.get('name', 'BLAS')} {blas.get('version', '')}".strip()


def loaded_pools() -> list[dict]:
    """The BLAS libraries loaded in this process, as threadpoolctl sees them."""
    return [pool for pool in threadpool_info() if pool["user_api"] == "blas"]


def describe_pool(pool: dict) -> str:
    """One line for one entry of `loaded_pools`.

    >>> describe_pool({"internal_api": "openblas", "version": "0.3.31.188.0",
    ...                "architecture": "Haswell"})
    'openblas 0.3.31 Haswell'
    """
    version = ".".join(str(pool.get("version") or "").split(".")[:3])
    words = [pool["internal_api"], version, pool.get("architecture") or ""]
    return " ".join(word for word in words if word)


def torch_backend(torch: ModuleType) -> str:
    """MKL or oneDNN and its version, from torch's own description of its build."""
    text = torch.__config__.show()
    for name, pattern in (
        ("MKL", r"Math Kernel Library Version ([\d.]+)"),
        ("oneDNN", r"(?:oneDNN|MKL-DNN) v([\d.]+)"),
    ):
        found = re.search(pattern, text)
        if found:
            return f"{name} {found.group(1)}"
    return "CPU"
