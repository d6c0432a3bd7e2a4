"""alpha, beta, c and the epilogue's operands, as a caller passes them to a product.

They become part of its epilogue where that can be: in one pass, or in the kernel itself. Complex
and integer products, and those of vectors, have no epilogues: the array's own operations follow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from tiercel.errors import TiercelTypeError
from tiercel.lower.epilogue.affine import around, as_given, factors, given

__all__ = ["Surrounded", "as_given", "surrounded"]


class Surrounded(NamedTuple):
    """What to pass on: ``after(product, out)`` makes the result where it is not None."""

    epilogue: Any
    bias: Any
    after: Callable[[Any, Any], Any] | None = None


def surrounded(
    epilogue: Any, bias: Any, c: Any, alpha: Any, beta: Any, operands: Mapping[str, Any],
    has_epilogues: Callable[[], bool],
) -> Surrounded:  # fmt: skip
    """``epilogue(alpha · product + beta · c + bias, **operands)`` as epilogue and bias.

    A keyword that names an operand of the epilogue is that operand. ``has_epilogues`` says whether
    the product has epilogues at all. Raises ``TiercelTypeError`` and ``TiercelValueError``.
    """
    terms = {"bias": bias, "c": c, "alpha": alpha, "beta": beta}
    found, terms = given(epilogue, terms, operands)
    bias, c = terms.get("bias"), terms.get("c")
    alpha, beta = factors(terms.get("alpha"), terms.get("beta"), c)
    if alpha == 1 and beta == 0:
        return Surrounded(found, bias)
    if not has_epilogues():
        if found is not None:
            raise TiercelTypeError(
                f"epilogue={epilogue!r} after alpha, beta or c needs a product of real floating "
                "matrices; leave it out, or apply it to the result"
            )
        return Surrounded(None, None, lambda x, out: _by_passes(x, alpha, beta, c, bias, out))
    if any(isinstance(x, complex) for x in (alpha, beta)):
        raise TiercelTypeError(
            f"alpha={alpha!r} and beta={beta!r} of a real product; allowed: real numbers"
        )
    if c is not None and not isinstance(c, float | int):
        c = c if hasattr(c, "ndim") else _as_array(c)
        c = c[None] if c.ndim == 1 else c  # a row, as broadcasting has it
    return Surrounded(around(found, alpha, beta, c, bias), None)


def _as_array(c: Any) -> Any:
    try:
        return np.asarray(c)
    except ValueError as problem:  # rows of different lengths
        raise TiercelTypeError(
            f"operand c is a {type(c).__name__}: {problem}; allowed: a real number, or an array"
        ) from None


def _by_passes(x: Any, alpha: Any, beta: Any, c: Any, bias: Any, out: Any) -> Any:
    """The array's own operations and promotions; ``out`` receives the result if there is one."""
    result = x if alpha == 1 else alpha * x
    if beta != 0:
        result = result + (c if beta == 1 else beta * c)
    if bias is not None:
        result = result + bias
    out = out[0] if isinstance(out, tuple) else out
    if out is None:
        return result
    if hasattr(out, "copy_"):
        return out.copy_(result)
    np.copyto(out, result, casting="same_kind")
    return out
