"""Products that only NumPy computes: subclasses, array protocols, dtypes without a kernel."""

from __future__ import annotations

from typing import Any

from tiercel import ufuncs
from tiercel.errors import TiercelTypeError
from tiercel.frontends.numpy.operands import ACCELERATED
from tiercel.options import Options


def numpys_own(a: Any, b: Any, out: Any, bias: Any, options: Options, what: str) -> Any:
    """``np.matmul(a, b, out=out)``: values, types and exceptions are NumPy's.

    Raises ``TiercelTypeError`` if the caller asked for something that ``np.matmul`` does not do;
    ``what`` names the reason that the product is NumPy's.
    """
    for name, x in (("a", a), ("b", b), ("out", out)):
        if type(x).__name__ in ("Packed", "PackedTensor"):
            raise TiercelTypeError(
                f"{name} is a {type(x).__name__}; allowed: what `pack` made of an array as b, "
                "beside an array, and what it made of a tensor beside a tensor"
            )
    asked = [
        f"{name}={value if isinstance(value, str) else '...'}"
        for name, value in (
            ("scheme", None if options.scheme == "vendor" else options.scheme),
            ("epilogue", options.epilogue),
            ("bias", bias),
        )
        if value is not None
    ]
    if asked:
        raise TiercelTypeError(
            f"{', '.join(asked)} does not work for {what}: only NumPy itself multiplies those. "
            f"Allowed: plain ndarrays whose product is one of {', '.join(ACCELERATED)}; convert "
            "the operands (np.asarray, astype), or leave the option out"
        )
    return ufuncs.matmul(a, b, out=out)
