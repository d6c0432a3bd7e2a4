"""Matrix multiplication schemes: exact, verified, composable. Pure mathematics, NumPy only.

>>> from tiercel import schemes
>>> strassen = schemes.get("strassen")
>>> strassen.rank, schemes.rms_growth(strassen)
(7, 2.0)
"""

from typing import TYPE_CHECKING, Any

from tiercel.schemes.accuracy import (
    error_bound,
    phi,
    prefactor,
    rms_growth,
    stability_factor,
    worst_case_growth,
)
from tiercel.schemes.catalogue import find, get, names
from tiercel.schemes.compose import classical, concatenate, tensor
from tiercel.schemes.rational import RationalMatrix, rational
from tiercel.schemes.scheme import Scheme
from tiercel.schemes.transform import (
    canonical,
    change_basis,
    normalise,
    orient,
    permute_products,
    rotate,
    scale_products,
    transpose,
)

if TYPE_CHECKING:
    from tiercel.schemes.files import dumps, load, loads

__all__ = [
    "RationalMatrix",
    "Scheme",
    "canonical",
    "change_basis",
    "classical",
    "concatenate",
    "dumps",
    "error_bound",
    "find",
    "get",
    "load",
    "loads",
    "names",
    "normalise",
    "orient",
    "permute_products",
    "phi",
    "prefactor",
    "rational",
    "rms_growth",
    "rotate",
    "scale_products",
    "stability_factor",
    "tensor",
    "transpose",
    "worst_case_growth",
]


def __getattr__(name: str) -> Any:
    # Half of this package's import time would be json, pathlib and regular expressions.
    if name in ("dumps", "load", "loads"):
        from tiercel.schemes import files

        return getattr(files, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
