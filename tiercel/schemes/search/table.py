"""Products' factors by value, compiled: which slots hold the same one, updated as a walk goes.

Factor x of product r is *slot* 3·r + x and a 64-bit word (see `walk`). Slots are entered into hash
buckets that are doubly linked lists, and those whose word another slot holds as well are listed as
*active*: from them a walk draws its next flip.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tiercel.schemes.search.jit import njit

#: Buckets per position of the table of factors; 5x5x5 keeps at most 130 products in each.
BUCKETS = 1024

#: Multiplier of Fibonacci hashing, 2^64 / golden ratio.
SPREAD = np.uint64(0x9E3779B97F4A7C15)
TO_BUCKET = np.uint64(54)

HALF_WORD = np.uint64(32)


class Table(NamedTuple):
    """Slots that hold the same word.

    ``words``: uint64, by slot. ``symmetric``: slots of all three positions are compared. ``head``:
    first slot of each bucket; ``after``, ``before``: its neighbours there, -1 at the ends.
    ``active``: the slots with an equal, ``place``: where a slot stands among them, or -1. How many
    they are is passed from call to call: as an element of an array it costs a fifth of the speed.
    """

    words: np.ndarray
    symmetric: bool
    head: np.ndarray
    after: np.ndarray
    before: np.ndarray
    active: np.ndarray
    place: np.ndarray


@njit
def draw(state, below):
    """A random integer in [0, below); xorshift64, which costs 1 ns."""
    x = state[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state[0] = x
    return np.int64(((x >> HALF_WORD) * np.uint64(below)) >> HALF_WORD)


@njit
def empty_table(words, symmetric):
    """A table for these words with no slot entered."""
    slots = len(words)
    return Table(
        words, symmetric, np.empty(3 * BUCKETS, np.int32), np.empty(slots, np.int32),
        np.empty(slots, np.int32), np.empty(slots, np.int32), np.empty(slots, np.int32),
    )  # fmt: skip


@njit
def fill(table, rank):
    """Enter the slots of so many products, and no others; returns how many are active."""
    table.head[:] = -1
    table.place[:] = -1
    count = 0
    for slot in range(3 * rank):
        count = link(table, slot, count)
    return count


@njit
def bucket(table, slot):
    """Where the table keeps a slot: each position has buckets of its own unless orbits mix them."""
    position = 0 if table.symmetric else slot % 3
    return np.int64((table.words[slot] * SPREAD) >> TO_BUCKET) + position * BUCKETS


@njit
def equals(table, at, word):
    """How many slots of a bucket hold the word, and the last of them."""
    words, after = table.words, table.after
    found, last = 0, -1
    scan = table.head[at]
    while scan >= 0:
        if words[scan] == word:
            found += 1
            last = scan
        scan = after[scan]
    return found, last


@njit
def link(table, slot, count):
    """Enter a slot; if others hold its word, it becomes active, and so does a single other one.

    Like all that follow it takes the number of active slots, and returns the new one.
    """
    at = bucket(table, slot)
    found, other = equals(table, at, table.words[slot])
    table.place[slot] = -1
    if found == 1 and table.place[other] < 0:
        count = activate(table, other, count)
    if found >= 1:
        count = activate(table, slot, count)
    first = table.head[at]
    table.after[slot] = first
    table.before[slot] = -1
    if first >= 0:
        table.before[first] = slot
    table.head[at] = slot
    return count


@njit
def unlink(table, slot, count):
    """Take a slot out, before its word changes; a single other one with that word is not active."""
    at = bucket(table, slot)
    before, after = table.before[slot], table.after[slot]
    if before >= 0:
        table.after[before] = after
    else:
        table.head[at] = after
    if after >= 0:
        table.before[after] = before
    if table.place[slot] < 0:
        return count
    count = deactivate(table, slot, count)
    found, other = equals(table, at, table.words[slot])
    if found == 1:
        count = deactivate(table, other, count)
    return count


@njit
def activate(table, slot, count):
    """Put a slot onto the list of those with an equal."""
    table.place[slot] = count
    table.active[count] = slot
    return count + 1


@njit
def deactivate(table, slot, count):
    """Strike a slot off the list of those with an equal."""
    at = table.place[slot]
    if at < 0:
        return count
    last = table.active[count - 1]
    table.active[at] = last
    table.place[last] = at
    table.place[slot] = -1
    return count - 1


@njit
def partner(table, slot, state):
    """A random slot of another product with the same word, or -1."""
    words, after = table.words, table.after
    word = words[slot]
    scan = table.head[bucket(table, slot)]
    chosen, seen = -1, 0
    while scan >= 0:
        if words[scan] == word and scan // 3 != slot // 3:
            seen += 1
            if seen == 1 or draw(state, seen) == 0:
                chosen = scan
        scan = after[scan]
    return chosen
