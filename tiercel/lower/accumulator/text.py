"""Routes as short texts: what the package ships and the cache keeps.

A route is a line of words. ``=p3/0`` clears and computes product 3 for output 0, ``+p5/1`` adds
product 5 for output 1; ``=@4/2`` and ``+@4/2`` load what the accumulator held after move 4, ``-@4``
takes it away again; ``!2`` stores output 2.
"""

from __future__ import annotations

import re

from tiercel.errors import TiercelValueError
from tiercel.lower.accumulator.route import (
    AddProduct,
    AddValue,
    Finish,
    Move,
    Route,
    TakeValue,
    holdings,
)
from tiercel.lower.accumulator.sums import Sums, Value

WORD = re.compile(
    r"(?P<sign>[=+])p(?P<product>\d+)/(?P<for_product>\d+)"
    r"|(?P<load>[=+])@(?P<loaded>\d+)/(?P<for_load>\d+)"
    r"|-@(?P<taken>\d+)"
    r"|!(?P<stored>\d+)"
)


def format_route(sums: Sums, route: Route) -> str:
    """The text of a route.

    >>> from tiercel import schemes
    >>> from tiercel.lower.accumulator.sums import sums_of
    >>> sums = sums_of(schemes.classical(1, 2, 1))
    >>> format_route(sums, (AddProduct(0, True, 0), AddProduct(1, False, 0), Finish(0)))
    '=p0/0 +p1/0 !0'
    """
    first: dict[Value, int] = {}
    words = []
    for at, (move, acc) in enumerate(zip(route, holdings(sums, route), strict=True)):
        match move:
            case AddProduct(product, clear, output):
                words.append(f"{_sign(clear)}p{product}/{output}")
            case AddValue(value, clear, output):
                words.append(f"{_sign(clear)}@{first[value]}/{output}")
            case TakeValue(value):
                words.append(f"-@{first[value]}")
            case Finish(output):
                words.append(f"!{output}")
        first.setdefault(acc, at)
    return " ".join(words)


def parse_route(sums: Sums, text: str) -> Route:
    """The route that a text spells out.

    Raises:
        TiercelValueError: a word that cannot be read, or a load of what was never held.
    """
    route: list[Move] = []
    held: list[Value] = []
    for word in text.split():
        match = WORD.fullmatch(word)
        if match is None or any(int(match[x] or -1) >= len(held) for x in ("loaded", "taken")):
            raise TiercelValueError(
                f"cannot read the word {word!r} of a route: it must be =p3/0, +p3/0, =@4/2, "
                "+@4/2, -@4 or !2, and load only what an earlier move left"
            )
        move = _move(match, held)
        route.append(move)
        held.append(next(holdings(sums, (move,), held[-1] if held else (0, 0))))
    return tuple(route)


def _move(match: re.Match[str], held: list[Value]) -> Move:
    if match["stored"]:
        return Finish(int(match["stored"]))
    if match["taken"]:
        return TakeValue(held[int(match["taken"])], held[-1][0])
    if match["product"]:
        return AddProduct(int(match["product"]), match["sign"] == "=", int(match["for_product"]))
    return AddValue(held[int(match["loaded"])], match["load"] == "=", int(match["for_load"]))


def _sign(clear: bool) -> str:
    return "=" if clear else "+"
