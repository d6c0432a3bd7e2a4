"""What BLAS puts around a product: ``f(alpha · acc + beta · c + bias)`` as one epilogue."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Number
from typing import Any

from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.lower.epilogue import library
from tiercel.lower.epilogue.graph import ACC, operand
from tiercel.lower.epilogue.kinds import Kind
from tiercel.lower.epilogue.trace import Epilogue, Given, assembled

#: What a caller may pass by these names, unless they name operands of the epilogue.
TERMS = ("alpha", "beta", "c", "bias")

_made: dict[tuple[Any, ...], Epilogue] = {}


def given(
    epilogue: Epilogue | Given | str | None, terms: Mapping[str, Any], operands: Mapping[str, Any]
) -> tuple[Given | str | None, dict[str, Any]]:
    """The epilogue with its operands, and those of ``terms`` that are not among them.

    ``terms`` are keywords of the product that may be operands instead, None where not given.
    Raises ``TiercelTypeError`` for operands without a traced epilogue, ``TiercelValueError`` for
    missing and unknown ones.

    >>> found, left = given(library.bias, {"bias": 1.0, "c": None}, {})
    >>> found, left
    (<epilogue bias with bias>, {'c': None})
    """
    if isinstance(epilogue, Given):
        operands, epilogue = {**epilogue.operands, **operands}, epilogue.epilogue
    if not isinstance(epilogue, Epilogue):
        if operands:
            raise TiercelTypeError(
                f"{', '.join(operands)}: neither an option of this function nor an operand, since "
                f"epilogue={epilogue!r}; operands belong to an epilogue made by tiercel.epilogue"
            )
        return epilogue, dict(terms)
    own = {x: terms[x] for x in epilogue.parameters if terms.get(x) is not None}
    return epilogue.given(**own, **operands), {x: y for x, y in terms.items() if x not in own}


def as_given(epilogue: Given | str | None) -> Given | None:
    """The traced form of a named epilogue; others as they are.

    >>> as_given("gelu")
    <epilogue gelu with no operands>
    """
    return getattr(library, epilogue).given() if isinstance(epilogue, str) else epilogue


def factors(alpha: Any, beta: Any, c: Any) -> tuple[Any, Any]:
    """alpha and beta as numbers: 1 where alpha is not given, and beta where only c is.

    >>> factors(None, None, None), factors(2, None, "an array")
    ((1.0, 0.0), (2, 1.0))
    """
    for name, x in (("alpha", alpha), ("beta", beta)):
        if x is not None and not isinstance(x, Number):
            raise TiercelTypeError(f"{name} is a {type(x).__name__}; allowed: a number")
    beta = (0.0 if c is None else 1.0) if beta is None else beta
    if c is None and beta != 0:
        raise TiercelValueError(f"beta is {beta} and c is missing; pass c, or leave beta out")
    return 1.0 if alpha is None else alpha, beta


def around(
    epilogue: Given | str | None, alpha: float, beta: float, c: Any, bias: Any
) -> Given | str | None:
    """``epilogue`` of ``alpha · acc + beta · c + bias``; c is not read where beta is 0.

    c broadcasts to the product; bias (N,). Both None, with alpha 1: the epilogue itself.

    >>> print(around("relu", 2.0, 1.0, [[1.0]], None).epilogue)
    affine_relu(acc, alpha, beta, c)
      out = maximum(acc * alpha + beta * c, 0)
    """
    if beta == 0:
        c = None
    if c is None and bias is None and alpha == 1:
        return epilogue
    terms: dict[str, Any] = {}
    if alpha != 1:
        terms["alpha"] = float(alpha)
    if c is not None:
        terms |= {"beta": float(beta), "c": c}
    if bias is not None:
        terms["bias"] = bias
    inner = as_given(epilogue)
    function, operands = (None, {}) if inner is None else (inner.epilogue, inner.operands)
    return Given(_affine(function, tuple(terms)), {**operands, **terms})


def _affine(inner: Epilogue | None, terms: tuple[str, ...]) -> Epilogue:
    """Kept, because kernels are compiled for an epilogue's identity."""
    made = _made.get((inner, terms))
    if made is not None:
        return made
    x = ACC
    if "alpha" in terms:
        x = x * operand("alpha")
    if "c" in terms:
        x = x + operand("beta") * operand("c")
    if "bias" in terms:
        x = x + operand("bias")
    kinds: dict[str, Kind] = {"alpha": "scalar", "beta": "scalar", "bias": "row"}
    pinned: dict[str, Kind] = {name: kinds[name] for name in terms if name != "c"}
    if inner is None:
        made = assembled("affine", "acc", terms, x, {}, pinned)
    else:
        made = assembled(
            f"affine_{inner.name}",
            inner.accumulator,
            (*inner.parameters, *terms),
            inner(x, **{name: operand(name) for name in inner.parameters}),
            inner.defaults,
            {**inner.pinned, **pinned},
        )
    if len(_made) >= 1024:  # epilogues that are traced again and again
        _made.clear()
    _made[inner, terms] = made
    return made
