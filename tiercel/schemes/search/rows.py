"""Rows of U, V and W as annealing looks at them: which are multiples, and which are allowed."""

from __future__ import annotations

import numpy as np

from tiercel.schemes.search.jit import njit


@njit
def key(row):
    """A number that is equal for rows that are multiples of each other."""
    lead = 0.0
    mixed = np.uint64(0)
    for x in row:
        if lead == 0.0 and x != 0.0:
            lead = x
        scaled = np.int64(0) if lead == 0.0 else np.int64(x / lead * 5040.0 * 64.0)
        mixed = (mixed ^ np.uint64(scaled)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return mixed


@njit
def fill_keys(factors, keys):
    """The keys of all rows, from nothing."""
    for x in range(3):
        for r in range(len(factors[x])):
            keys[x, r] = key(factors[x][r])


@njit
def power_of_two(size):
    """Whether a positive number is 2^e."""
    while size < 1.0:
        size *= 2.0
    while size > 1.0:
        size *= 0.5
    return size == 1.0


@njit
def allowed(row, finest, largest):
    """Whether all entries are 0 or ±2^e from `finest` to `largest`, and not all are zero.

    Powers of two cost no rounding. Where `finest` is 1 other integers may pass through.
    """
    empty = True
    for x in row:
        size = abs(x)
        if size > largest or size / finest != np.floor(size / finest):
            return False
        if size != 0.0:
            empty = False
            if finest < 1.0 and not power_of_two(size):
                return False
    return not empty


@njit
def all_allowed(factors, finest, largest):
    """Whether every row of U, V and W is allowed."""
    for x in range(3):
        for r in range(len(factors[x])):
            if not allowed(factors[x][r], finest, largest):
                return False
    return True
