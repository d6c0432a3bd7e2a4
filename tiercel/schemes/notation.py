"""Schemes written the way papers print them: one line per product, one line per output.

    m1 = (a11 + a22)(b11 + b22)
    m2 = -1/2 a12 (b21 - 2 b22)
    c11 = m1 - m2

Indices count from 1 and have one digit each. A coefficient is an integer or a fraction p/q written
before its term. The order of the product lines is the order of the scheme's products.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fractions import Fraction

from tiercel.errors import TiercelValueError
from tiercel.schemes.rational import rational
from tiercel.schemes.scheme import Scheme

TERM = re.compile(r"\s*([+-]?)\s*(\d+(?:/\d+)?)?\s*([abcm]\d+)\s*")
PRODUCT = re.compile(
    r"(?P<factor>[+-]?\s*(?:\d+(?:/\d+)?)?)\s*"
    r"(?P<left>\([^()]*\)|a\d\d)\s*(?P<right>\([^()]*\)|b\d\d)\s*"
)


def parse_equations(
    grid: tuple[int, int, int], text: str, name: str = "", provenance: str = ""
) -> Scheme:
    r"""The scheme that `text` spells out.

    Args:
        grid: (m, k, n), each at most 9.
        text: product lines ``m1 = (...)(...)`` and output lines ``c11 = ...``; blank lines and
            whatever follows ``#`` are ignored.

    Raises:
        TiercelValueError: a line that cannot be read, an index outside the grid, or a set of
            equations that is not a matrix product.

    >>> parse_equations((1, 2, 1), "m1 = a11 b11 \n m2 = a12 b21 \n c11 = m1 + m2")
    Scheme(<1,2,1;2>)
    """
    m, k, n = grid
    products: dict[str, tuple[list[Fraction], list[Fraction]]] = {}
    outputs: dict[int, dict[str, Fraction]] = {}
    for line in _lines(text):
        target, separator, expression = (part.strip() for part in line.partition("="))
        if separator and re.fullmatch(r"m\d+", target) and target not in products:
            products[target] = _product(line, expression, grid)
        elif separator and re.fullmatch(r"c\d\d", target):
            outputs[_entry(line, target, "c", m, n)] = _sum(line, expression)
        else:
            raise _unreadable(line, "every line defines a new product m<r> or an output c<i><j>")
    W = [[Fraction(0)] * (m * n) for _ in products]
    row_of = {product: row for row, product in enumerate(products)}
    for column, terms in outputs.items():
        for product, coefficient in terms.items():
            if product not in row_of:
                raise _unreadable(f"c... = {product}", "outputs sum products that are defined")
            W[row_of[product]][column] += coefficient
    return Scheme(
        m,
        k,
        n,
        U=rational([left for left, _ in products.values()]),
        V=rational([right for _, right in products.values()]),
        W=rational(W),
        name=name,
        provenance=provenance,
    )


def format_equations(scheme: Scheme) -> str:
    """The scheme as text that [parse_equations][tiercel.schemes.notation.parse_equations] reads.

    Raises:
        TiercelValueError: a grid wider than 9, whose indices need two digits.

    >>> from tiercel.schemes import classical
    >>> print(format_equations(classical(1, 1, 1)))
    m1 = a11 b11
    c11 = m1
    """
    if max(scheme.grid) > 9:
        raise TiercelValueError(
            f"equations have one digit per index: got the grid {scheme.grid}; write JSON instead"
        )
    m, k, n = scheme.grid
    u, v, w = scheme.U.fractions(), scheme.V.fractions(), scheme.W.fractions()
    a_names = [f"a{row + 1}{column + 1}" for row in range(m) for column in range(k)]
    b_names = [f"b{row + 1}{column + 1}" for row in range(k) for column in range(n)]
    c_names = [f"c{row + 1}{column + 1}" for row in range(m) for column in range(n)]
    m_names = [f"m{r + 1}" for r in range(scheme.rank)]
    lines = [
        f"{product} = {_side(_spell(u[r], a_names))} {_side(_spell(v[r], b_names))}"
        for r, product in enumerate(m_names)
    ]
    lines += [f"{output} = {_spell(w[:, c], m_names)}" for c, output in enumerate(c_names)]
    return "\n".join(lines)


def _lines(text: str) -> list[str]:
    stripped = (line.partition("#")[0].strip() for line in text.splitlines())
    return [line for line in stripped if line]


def _product(
    line: str, expression: str, grid: tuple[int, int, int]
) -> tuple[list[Fraction], list[Fraction]]:
    m, k, n = grid
    match = PRODUCT.fullmatch(expression)
    if match is None:
        raise _unreadable(line, "a product is a sum of a's times a sum of b's: (a11 + a12)(b11)")
    left = [Fraction(0)] * (m * k)
    right = [Fraction(0)] * (k * n)
    factor = _coefficient(match["factor"])
    for entry, coefficient in _sum(line, match["left"].strip("()")).items():
        left[_entry(line, entry, "a", m, k)] += factor * coefficient
    for entry, coefficient in _sum(line, match["right"].strip("()")).items():
        right[_entry(line, entry, "b", k, n)] += coefficient
    return left, right


def _sum(line: str, expression: str) -> dict[str, Fraction]:
    terms: dict[str, Fraction] = {}
    position = 0
    while position < len(expression) or not terms:
        match = TERM.match(expression, position)
        if match is None or (terms and not match[1]):
            raise _unreadable(line, "a sum is terms such as a11, -b12 or 1/2 m3 joined by + or -")
        sign, size, name = match.groups(default="")
        terms[name] = terms.get(name, Fraction(0)) + _coefficient(sign + size)
        position = match.end()
    return terms


def _coefficient(text: str) -> Fraction:
    compact = text.replace(" ", "")
    return Fraction(compact + "1" if compact in ("", "+", "-") else compact)


def _entry(line: str, entry: str, letter: str, rows: int, columns: int) -> int:
    if re.fullmatch(rf"{letter}[1-{min(rows, 9)}][1-{min(columns, 9)}]", entry) is None:
        raise _unreadable(line, f"{entry} must be one of {letter}11 ... {letter}{rows}{columns}")
    return (int(entry[1]) - 1) * columns + int(entry[2]) - 1


def _spell(coefficients: Iterable[Fraction], names: list[str]) -> str:
    text = ""
    for coefficient, name in zip(coefficients, names, strict=True):
        if coefficient == 0:
            continue
        sign = "-" if coefficient < 0 else "+" if text else ""
        joint = f" {sign} " if text else sign
        size = "" if abs(coefficient) == 1 else f"{abs(coefficient)} "
        text += f"{joint}{size}{name}"
    return text


def _side(terms: str) -> str:
    return terms if re.fullmatch(r"[ab]\d\d", terms) else f"({terms})"


def _unreadable(line: str, rule: str) -> TiercelValueError:
    return TiercelValueError(f"cannot read the line {line!r} of a scheme: {rule}")
