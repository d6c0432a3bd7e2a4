"""Fewer additions by sharing partial sums: common-subexpression elimination.

The sums of A's blocks, those of B's and those that make C's are three lists of linear forms. Where
two terms occur together, up to a common factor, in several forms, their sum is computed once.

When it pays: where an addition costs arithmetic. A kernel that writes all sums to memory moves the
same R result blocks either way and reads each source once per group of sums that it makes together,
so a group-wise combination that is limited by bandwidth gains nothing, and shared sums that do not
fit into registers cost extra traffic. Shared sums also round twice, so the growth factors of
`accuracy`, which count every term once, understate the error a little.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from tiercel.schemes.rational import RationalMatrix, from_numerators, rational
from tiercel.schemes.scheme import Scheme

Number = int | Fraction

# Inside, ratios of powers of two are floats: they are exact, and ten times as quick as fractions.
Factor = Number | float
Form = dict[int, Factor]
Pair = tuple[int, int, Factor]


@dataclass(frozen=True)
class SharedSums:
    """A straight-line program for several linear forms.

    Args:
        inputs: number of inputs; they are the variables 0 … inputs - 1.
        sums: variable ``inputs + t`` is ``x[i] + factor * x[j]`` for ``(i, j, factor) = sums[t]``.
        forms: each result, as factors of variables; its terms are summed one by one.
    """

    inputs: int
    sums: tuple[tuple[int, int, Number], ...]
    forms: tuple[tuple[tuple[int, Number], ...], ...]

    @property
    def additions(self) -> int:
        """Additions and subtractions of all steps."""
        return len(self.sums) + sum(len(form) - 1 for form in self.forms)

    def __call__(self, x: Any) -> list[Any]:
        """The values of the forms for a sequence of inputs: numbers or arrays."""
        values = list(x)
        for i, j, factor in self.sums:
            values.append(values[i] + factor * values[j])
        return [sum(factor * values[i] for i, factor in form) for form in self.forms]


def share_sums(matrix: RationalMatrix | np.ndarray, seed: int = 0) -> SharedSums:
    """Greedy elimination: always the pair of terms that occurs most often, ties by the seed.

    Args:
        matrix: one linear form per row.
        seed: of the choice among equals.

    >>> from tiercel.schemes import get
    >>> share_sums(get("winograd").U).additions  # s1 … s4
    4
    """
    matrix = rational(matrix)
    sums, forms = _eliminate(matrix, seed)
    return SharedSums(
        matrix.shape[1],
        tuple((i, j, _exact(factor)) for i, j, factor in sums),
        tuple(tuple((i, _exact(factor)) for i, factor in sorted(form.items())) for form in forms),
    )


def reduced_additions(scheme: Scheme, tries: int = 8) -> int:
    """Additions of one application with shared sums, the best of some greedy eliminations.

    >>> from tiercel.schemes import get
    >>> [reduced_additions(get(name)) for name in ("strassen", "winograd")]
    [18, 15]
    """
    outputs = from_numerators(scheme.W.numerators.T, scheme.W.denominator)
    sides = scheme.U, scheme.V, outputs

    def additions(matrix: RationalMatrix, seed: int) -> int:
        sums, forms = _eliminate(matrix, seed)
        return len(sums) + sum(len(form) - 1 for form in forms)

    return sum(min(additions(x, seed) for seed in range(tries)) for x in sides)


def _eliminate(matrix: RationalMatrix, seed: int) -> tuple[list[Pair], list[Form]]:
    """The shared sums, and the forms with them as variables."""
    rng = np.random.default_rng(seed)
    inputs, forms = matrix.shape[1], _forms(matrix)
    sums: list[Pair] = []
    tally = _Tally(len(forms))
    for form in forms:
        for pair in _pairs(form):
            tally.add(pair)
    while ties := tally.most_frequent():
        pair = ties[rng.integers(len(ties))]
        sums.append(pair)
        _replace(pair, inputs + len(sums) - 1, forms, tally)
    return sums, forms


class _Tally:
    """How often pairs occur, and which occur most often, without a look at all of them.

    There are thousands, most of them once: to look through them for each sum took half the time.
    """

    def __init__(self, forms: int):
        self.counts: dict[Pair, int] = {}
        self.shelves: list[dict[Pair, None]] = [{} for _ in range(forms + 1)]  # by count, from 2
        self.most = forms

    def add(self, pair: Pair) -> None:
        count = self.counts.get(pair, 0) + 1
        self.counts[pair] = count
        if count > 1:
            self.shelves[count][pair] = None
            if count > 2:
                del self.shelves[count - 1][pair]

    def remove(self, pair: Pair) -> None:
        count = self.counts[pair] - 1
        self.counts[pair] = count
        if count > 0:
            del self.shelves[count + 1][pair]
            if count > 1:
                self.shelves[count][pair] = None

    def most_frequent(self) -> list[Pair]:
        """The pairs that occur most often; none if no pair occurs twice."""
        # New pairs have the new variable, which occurs no more often than the pair it stands for.
        while self.most > 1 and not self.shelves[self.most]:
            self.most -= 1
        return list(self.shelves[self.most]) if self.most > 1 else []


def _forms(matrix: RationalMatrix) -> list[Form]:
    numerators, denominator = matrix.numerators, matrix.denominator
    dyadic = matrix.is_power_of_two
    unit = {denominator: 1, -denominator: -1}

    def number(x: int) -> Factor:
        return x / denominator if dyadic else Fraction(x, denominator)

    return [
        {int(i): unit.get(int(row[i])) or number(int(row[i])) for i in np.flatnonzero(row)}
        for row in numerators
    ]


def _exact(factor: Factor) -> Number:
    fraction = Fraction(factor)
    return fraction.numerator if fraction.denominator == 1 else fraction


def _pairs(form: Form) -> list[Pair]:
    """Pairs of terms as (i, j, factor) with x_i + factor · x_j, up to a multiple of the whole."""
    terms = sorted(form.items())
    return [_pair(i, a, j, b) for at, (i, a) in enumerate(terms) for j, b in terms[at + 1 :]]


def _pair(i: int, a: Factor, j: int, b: Factor) -> Pair:
    if i > j:
        i, a, j, b = j, b, i, a
    return i, j, a * b if a in (1, -1) else _ratio(b, a)


def _ratio(b: Factor, a: Factor) -> Factor:
    return b / a if isinstance(a, float) else Fraction(b) / a


def _replace(pair: Pair, variable: int, forms: list[Form], tally: _Tally) -> None:
    """Use a new variable for a pair of terms; of the counts only those of its terms change."""
    i, j, factor = pair
    for form in forms:
        if i in form and j in form and form[j] == factor * form[i]:
            a, b = form.pop(i), form.pop(j)
            tally.remove(pair)
            for other, c in form.items():
                tally.remove(_pair(i, a, other, c))
                tally.remove(_pair(j, b, other, c))
                tally.add(_pair(other, c, variable, a))
            form[variable] = a
