"""What BLAS puts around a product: ``f(alpha · acc + beta · c + bias)`` as one epilogue."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Number
from typing import Any

from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.lower.epilogue import library
from tiercel.lower.epilogue.graph import ACC, operand
from tiercel.lower.epilogue.kinds import Kind
from tiercel.lower.epilogue.known import known
from tiercel.lower.epilogue.trace import Epilogue, Given, assembled

_made: dict[tuple[str, tuple[str, ...]], Epilogue] = {}


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
    key = "" if function is None else function.key
    return Given(affine(key, tuple(terms)), {**operands, **terms})


def affine(key: str, terms: tuple[str, ...]) -> Epilogue:
    """The epilogue of this key, or none for "", after these terms.

    Kept, because kernels are compiled for an epilogue's identity. By key, because a compiler that
    traces Python runs this function, whose arguments it must then know.
    """
    made = _made.get((key, terms))
    if made is not None:
        return made
    inner = known(key) if key else None
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
    _made[key, terms] = made
    return made
