"""Matrix multiplication schemes: exact, verified, composable. Pure mathematics, NumPy only.

``scheme`` is the type, which ``brent`` verifies, of ``rational`` matrices; ``catalogue`` has the
named ones (``known/``, ``found/``), ``compose`` and ``transform`` make others of them, ``accuracy``
and ``additions`` say what they are worth, ``files`` reads them. ``search/`` finds new ones.

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
from tiercel.schemes.additions import SharedSums, reduced_additions, share_sums
from tiercel.schemes.catalogue import find, get, names
from tiercel.schemes.compose import classical, concatenate, extend, project, tensor
from tiercel.schemes.marks import Mark, mark
from tiercel.schemes.rational import RationalMatrix, rational
from tiercel.schemes.scheme import Scheme
from tiercel.schemes.transform import (
    canonical,
    change_basis,
    equivalent,
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
    "Mark",
    "RationalMatrix",
    "Scheme",
    "SharedSums",
    "canonical",
    "change_basis",
    "classical",
    "concatenate",
    "dumps",
    "equivalent",
    "error_bound",
    "extend",
    "find",
    "get",
    "load",
    "loads",
    "mark",
    "names",
    "normalise",
    "orient",
    "permute_products",
    "phi",
    "prefactor",
    "project",
    "rational",
    "reduced_additions",
    "rms_growth",
    "rotate",
    "scale_products",
    "share_sums",
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
