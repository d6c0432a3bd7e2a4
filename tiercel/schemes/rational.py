"""Exact rational matrices: what a scheme's coefficients and its changes of basis are made of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from math import gcd, lcm
from typing import Any

import numpy as np

from tiercel.errors import TiercelTypeError, TiercelValueError

INT64_MAX = 2**63 - 1


@dataclass(frozen=True, eq=False)
class RationalMatrix:
    """An exact matrix: int64 numerators over one common positive denominator.

    The pair is always in lowest terms, so that equal values mean equal fields. Build one with
    [rational][tiercel.schemes.rational.rational].

    Args:
        numerators: read-only int64 array of shape (rows, columns).
        denominator: positive integer that divides every numerator.

    >>> half = rational([["1/2", 1], [0, -1]])
    >>> half.denominator, half.numerators.tolist()
    (2, [[1, 2], [0, -2]])
    >>> half[0, 0]
    Fraction(1, 2)
    """

    numerators: np.ndarray
    denominator: int

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.numerators.shape
        return rows, columns

    @property
    def nonzeros(self) -> int:
        """Number of coefficients that are not zero."""
        return int(np.count_nonzero(self.numerators))

    @property
    def is_integral(self) -> bool:
        return self.denominator == 1

    @cached_property
    def is_power_of_two(self) -> bool:
        """Whether every coefficient is 0 or ±2^e, so that multiplying by it rounds nothing."""
        magnitudes = np.abs(self.numerators)
        single_bit = (magnitudes & (magnitudes - 1)) == 0
        return self.denominator & (self.denominator - 1) == 0 and bool(single_bit.all())

    def floats(self, dtype: Any = np.float64) -> np.ndarray:
        """The coefficients as a new floating-point array, each rounded once."""
        return (self.numerators / self.denominator).astype(dtype)

    def fractions(self) -> np.ndarray:
        """The coefficients as a new object array of `fractions.Fraction`."""
        flat = [Fraction(int(x), self.denominator) for x in self.numerators.ravel()]
        return _object_array(flat, self.shape)

    def __getitem__(self, index: tuple[int, int]) -> Fraction:
        row, column = index
        return Fraction(int(self.numerators[row, column]), self.denominator)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.floats(np.float64 if dtype is None else dtype)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RationalMatrix):
            return NotImplemented
        return self.denominator == other.denominator and np.array_equal(
            self.numerators, other.numerators
        )

    def __hash__(self) -> int:
        return hash((self.shape, self.denominator, self.numerators.tobytes()))


def rational(values: Any) -> RationalMatrix:
    """The exact matrix that `values` spells out.

    Args:
        values: two-dimensional nest or array of integers, `Fraction`, finite floats (taken at
            their exact binary value) or strings such as ``"-1/2"``; or a `RationalMatrix`.

    Raises:
        TiercelValueError: not two-dimensional, not finite, or too large for int64.
        TiercelTypeError: an entry that is not a number.
    """
    if isinstance(values, RationalMatrix):
        return values
    array = _two_dimensional(values)
    flat = array.ravel().tolist()
    if all(type(x) is int for x in flat):
        return from_numerators(array.astype(np.int64) if _fits_int64(array) else array, 1)
    entries = [_fraction(x) for x in flat]
    denominator = lcm(*(x.denominator for x in entries))
    scaled = [x.numerator * (denominator // x.denominator) for x in entries]
    return from_numerators(_object_array(scaled, array.shape), denominator)


def from_numerators(numerators: np.ndarray, denominator: int) -> RationalMatrix:
    """``numerators / denominator`` in lowest terms; integer array of any width, denominator > 0."""
    if numerators.dtype == object:
        common = gcd(denominator, *(int(x) for x in numerators.ravel()))
    else:
        common = gcd(denominator, int(np.gcd.reduce(numerators, axis=None)))
    reduced = numerators // common
    denominator //= common
    if not _fits_int64(reduced) or denominator > INT64_MAX:
        raise TiercelValueError(
            "coefficients over one common denominator must fit int64: got denominator "
            f"{denominator} and largest numerator {max(abs(int(x)) for x in reduced.ravel())}; "
            "scale the products so that their coefficients are smaller"
        )
    fixed = np.array(reduced, dtype=np.int64, order="C")
    fixed.flags.writeable = False
    return RationalMatrix(fixed, denominator)


def inverse(matrix: RationalMatrix) -> RationalMatrix:
    """The exact inverse of a square matrix, by Gauss-Jordan elimination over the rationals.

    Raises:
        TiercelValueError: not square, or singular.

    >>> inverse(rational([[1, "1/2"], [0, 1]])).fractions().tolist()[0]
    [Fraction(1, 1), Fraction(-1, 2)]
    """
    rows, columns = matrix.shape
    if rows != columns:
        raise TiercelValueError(
            f"a change of basis must be square: got {rows} x {columns}; give an invertible matrix"
        )
    identity = rational(np.eye(rows, dtype=np.int64)).fractions()
    work = np.concatenate([matrix.fractions(), identity], axis=1)
    for column in range(rows):
        pivot = next((row for row in range(column, rows) if work[row, column] != 0), None)
        if pivot is None:
            raise TiercelValueError(
                f"a change of basis must be invertible: column {column} depends on the columns "
                "before it; give a matrix with a non-zero determinant"
            )
        work[[column, pivot]] = work[[pivot, column]]
        work[column] /= work[column, column]
        for row in range(rows):
            if row != column and work[row, column] != 0:
                work[row] -= work[row, column] * work[column]
    return rational(work[:, rows:])


def _two_dimensional(values: Any) -> np.ndarray:
    if not isinstance(values, np.ndarray):
        # Without dtype=object NumPy would turn a nest of ints and "p/q" strings into strings, and
        # with it a ragged nest would become a vector of lists.
        rows = [list(row) if isinstance(row, Iterable) else row for row in values]
        if len({len(row) for row in rows if isinstance(row, list)}) > 1:
            raise TiercelValueError(
                "coefficients must form a rectangle: got rows of different lengths; give one row "
                "per product and one column per matrix entry"
            )
        values = np.array(rows, dtype=object)
    if values.ndim != 2 or values.size == 0:
        raise TiercelValueError(
            f"coefficients must be a non-empty two-dimensional array: got shape {values.shape}; "
            "give one row per product and one column per matrix entry"
        )
    return values


def _fraction(entry: Any) -> Fraction:
    try:
        return _parsed(entry) if isinstance(entry, str) else Fraction(entry)
    except (ValueError, OverflowError, ZeroDivisionError):
        raise TiercelValueError(
            f"a coefficient must be a finite rational number: got {entry!r}; "
            'give an integer, a Fraction, a float or a string such as "-1/2"'
        ) from None
    except TypeError:
        raise TiercelTypeError(
            f"a coefficient must be a number: got {entry!r} of type {type(entry).__name__}; "
            'give an integer, a Fraction, a float or a string such as "-1/2"'
        ) from None


@lru_cache(maxsize=1024)
def _parsed(text: str) -> Fraction:
    return Fraction(text)  # 1 µs, for tens of thousands of "-1/2" in the catalogue


def _fits_int64(array: np.ndarray) -> bool:
    return int(array.min()) >= -INT64_MAX and int(array.max()) <= INT64_MAX


def _object_array(flat: list[Any], shape: tuple[int, ...]) -> np.ndarray:
    array = np.empty(len(flat), dtype=object)
    array[:] = flat
    return array.reshape(shape)
