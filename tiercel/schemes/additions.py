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

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from tiercel.schemes.rational import RationalMatrix
from tiercel.schemes.scheme import Scheme

# Most coefficients are ±1, and integers are ten times as quick as fractions.
Number = int | Fraction
Form = dict[int, Number]


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
    rng = np.random.default_rng(seed)
    rows = matrix.fractions() if isinstance(matrix, RationalMatrix) else matrix
    inputs = rows.shape[1]
    forms: list[Form] = [{i: _number(x) for i, x in enumerate(row) if x != 0} for row in rows]
    sums: list[tuple[int, int, Number]] = []
    counts: Counter[tuple[int, int, Number]] = Counter()
    for form in forms:
        counts.update(_pairs(form))
    while counts:
        most = max(counts.values())
        if most < 2:
            break
        ties = [pair for pair, count in counts.items() if count == most]
        pair = ties[rng.integers(len(ties))]
        sums.append(pair)
        _replace(pair, inputs + len(sums) - 1, forms, counts)
    return SharedSums(inputs, tuple(sums), tuple(tuple(sorted(form.items())) for form in forms))


def reduced_additions(scheme: Scheme, tries: int = 8) -> int:
    """Additions of one application with shared sums, the best of some greedy eliminations.

    >>> from tiercel.schemes import get
    >>> [reduced_additions(get(name)) for name in ("strassen", "winograd")]
    [18, 15]
    """
    outputs = scheme.W.fractions().T
    sides = (scheme.U.fractions(), scheme.V.fractions(), outputs)
    return sum(min(share_sums(x, seed).additions for seed in range(tries)) for x in sides)


def _number(x: Any) -> Number:
    fraction = Fraction(x)
    return fraction.numerator if fraction.denominator == 1 else fraction


def _pairs(form: Form) -> list[tuple[int, int, Number]]:
    """Pairs of terms as (i, j, factor) with x_i + factor · x_j, up to a multiple of the whole."""
    terms = sorted(form.items())
    return [
        (i, j, a * b if a in (1, -1) else Fraction(b) / a)
        for at, (i, a) in enumerate(terms)
        for j, b in terms[at + 1 :]
    ]


def _replace(
    pair: tuple[int, int, Number],
    variable: int,
    forms: list[Form],
    counts: Counter[tuple[int, int, Number]],
) -> None:
    i, j, factor = pair
    for form in forms:
        if i in form and j in form and form[j] == factor * form[i]:
            gone = _pairs(form)
            form[variable] = form.pop(i)
            del form[j]
            counts.update(_pairs(form))
            for key in gone:
                counts[key] -= 1
                if counts[key] == 0:
                    del counts[key]
