"""The inner loop: a random walk in the flip graph, compiled.

A node is a scheme of R products a ⊗ b ⊗ c. Where two products agree in a factor, a *flip*

    a ⊗ b ⊗ c + a ⊗ b' ⊗ c'  =  a ⊗ (b + b') ⊗ c + a ⊗ b' ⊗ (c' - c)

leads to another scheme of the same rank; a factor that becomes zero takes its product along, which
is a *reduction* (M. Kauers, J. Moosbauer, *Flip graphs for matrix multiplication*, 2022). A *plus
transition* writes two products as three, and opens a way out of a component without reductions
(Y. Arai, Y. Ichikawa, K. Hukushima, *Adaptive flip graph algorithm for matrix multiplication*,
2024).

A factor is one 64-bit word: coefficients modulo 2 as bits, or coefficients -1, 0, 1 as a word of
the places with +1 and, 32 bits higher, a word of those with -1. Ternary factors are normalised to
start with +1 and the sign stays with the product. Factor x of product r is *slot* 3·r + x.

For schemes with cyclic symmetry one row stands for the three products a⊗b⊗c, b⊗c⊗a and c⊗a⊗b
(J. Moosbauer, M. Poole, *Flip graphs with symmetry and new matrix multiplication schemes*, 2025).
Factors then match across all three positions, and a flip acts on whole orbits.
"""

from __future__ import annotations

import numpy as np

from tiercel.schemes.search.jit import njit

#: Buckets per position of the table of factors; 5x5x5 keeps at most 130 products in each.
BUCKETS = 1024

#: Multiplier of Fibonacci hashing, 2^64 / golden ratio.
SPREAD = np.uint64(0x9E3779B97F4A7C15)
TO_BUCKET = np.uint64(54)

HALF_WORD = np.uint64(32)
ONE = np.uint64(1)
ZERO = np.uint64(0)


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
def negated(x):
    """Minus a ternary factor: the two half-words change places."""
    return (x << HALF_WORD) | (x >> HALF_WORD)


@njit
def ternary_sum(x, y):
    """x + y, and whether all its coefficients are -1, 0 or 1."""
    return (x & ~negated(y)) | (y & ~negated(x)), (x & y) == ZERO


@njit
def starts_negative(x):
    """Whether the first non-zero coefficient is -1."""
    places = (x | (x >> HALF_WORD)) & np.uint64(0xFFFFFFFF)
    lowest = places & (~places + ONE)
    return (x & lowest) == ZERO and places != ZERO


@njit
def bucket(word, slot, symmetric):
    """Where the table keeps a slot: each position has buckets of its own unless orbits mix them."""
    position = 0 if symmetric else slot % 3
    return np.int64((word * SPREAD) >> TO_BUCKET) + position * BUCKETS


@njit
def link(slot, words, symmetric, head, after, before, active, place, count):
    """Enter a slot into the table; slots with an equal become active. Returns how many are."""
    word = words[slot]
    at = bucket(word, slot, symmetric)
    equals, other = 0, -1
    scan = head[at]
    while scan >= 0:
        if words[scan] == word:
            equals += 1
            other = scan
        scan = after[scan]
    if equals == 1 and place[other] < 0:
        place[other] = count
        active[count] = other
        count += 1
    if equals >= 1:
        place[slot] = count
        active[count] = slot
        count += 1
    else:
        place[slot] = -1
    first = head[at]
    after[slot] = first
    before[slot] = -1
    if first >= 0:
        before[first] = slot
    head[at] = slot
    return count


@njit
def deactivate(slot, active, place, count):
    """Strike a slot off the list of those with an equal. Returns how many are left."""
    at = place[slot]
    if at < 0:
        return count
    last = active[count - 1]
    active[at] = last
    place[last] = at
    place[slot] = -1
    return count - 1


@njit
def unlink(slot, words, symmetric, head, after, before, active, place, count):
    """Take a slot out of the table, before its word changes. Returns how many are active."""
    word = words[slot]
    at = bucket(word, slot, symmetric)
    if before[slot] >= 0:
        after[before[slot]] = after[slot]
    else:
        head[at] = after[slot]
    if after[slot] >= 0:
        before[after[slot]] = before[slot]
    if place[slot] < 0:
        return count
    count = deactivate(slot, active, place, count)
    equals, other = 0, -1
    scan = head[at]
    while scan >= 0:
        if words[scan] == word:
            equals += 1
            other = scan
        scan = after[scan]
    if equals == 1:
        count = deactivate(other, active, place, count)
    return count


@njit
def partner(slot, words, symmetric, head, after, state):
    """A random slot of another product with the same factor, or -1."""
    word = words[slot]
    scan = head[bucket(word, slot, symmetric)]
    chosen, seen = -1, 0
    while scan >= 0:
        if words[scan] == word and scan // 3 != slot // 3:
            seen += 1
            if seen == 1 or draw(state, seen) == 0:
                chosen = scan
        scan = after[scan]
    return chosen


@njit
def drop(r, rank, words, signs, symmetric, head, after, before, active, place, count):
    """Remove product r; the last product takes its number. Returns how many slots are active."""
    last = rank - 1
    for x in range(3):
        count = unlink(3 * r + x, words, symmetric, head, after, before, active, place, count)
    if r != last:
        for x in range(3):
            count = unlink(
                3 * last + x, words, symmetric, head, after, before, active, place, count
            )
        for x in range(3):
            words[3 * r + x] = words[3 * last + x]
        signs[r] = signs[last]
        for x in range(3):
            count = link(3 * r + x, words, symmetric, head, after, before, active, place, count)
    return count


@njit
def plus(rank, words, signs, ternary, symmetric, state):
    """Split a random pair of products into three, if the coefficients allow it: the new rank.

    a⊗b⊗c + a'⊗b'⊗c' = a⊗(b+b')⊗c + (a'-a)⊗b'⊗c' + a⊗b'⊗(c'-c), up to the order of positions.
    """
    r = draw(state, rank)
    s = draw(state, rank - 1)
    s += s >= r
    x = draw(state, 3)
    y, z = (x + 1) % 3, (x + 2) % 3
    if draw(state, 2):
        y, z = z, y
    shift = draw(state, 3) if symmetric else 0
    a, b, c = words[3 * r + x], words[3 * r + y], words[3 * r + z]
    a2, b2, c2 = (
        words[3 * s + (x + shift) % 3],
        words[3 * s + (y + shift) % 3],
        words[3 * s + (z + shift) % 3],
    )
    if a == a2 or b == b2 or c == c2:
        return rank
    if ternary:
        # The sign of the second product goes into its c', so that both have that of the first.
        if signs[r] != signs[s]:
            c2 = negated(c2)
        b_sum, b_fits = ternary_sum(b, b2)
        a_rest, a_fits = ternary_sum(a2, negated(a))
        c_rest, c_fits = ternary_sum(c2, negated(c))
        # A difference may vanish after all, where c' = -c.
        if not (b_fits and a_fits and c_fits) or b_sum == ZERO or a_rest == ZERO or c_rest == ZERO:
            return rank
    else:
        b_sum, a_rest, c_rest = b ^ b2, a2 ^ a, c2 ^ c
    t = rank
    words[3 * r + y] = b_sum
    words[3 * s + x], words[3 * s + y], words[3 * s + z] = a_rest, b2, c2
    words[3 * t + x], words[3 * t + y], words[3 * t + z] = a, b2, c_rest
    if ternary:
        signs[s] = signs[r]
        signs[t] = signs[r]
        for product in (r, s, t):
            normalise(product, words, signs)
    return rank + 1


@njit
def normalise(r, words, signs):
    """Move the signs of a product's ternary factors into its sign."""
    for slot in range(3 * r, 3 * r + 3):
        if starts_negative(words[slot]):
            words[slot] = negated(words[slot])
            signs[r] = -signs[r]


@njit
def build(rank, words, symmetric, head, after, before, active, place):
    """Fill the table from nothing. Returns how many slots are active."""
    head[:] = -1
    place[:] = -1
    count = 0
    for slot in range(3 * rank):
        count = link(slot, words, symmetric, head, after, before, active, place, count)
    return count


@njit
def walk(words, signs, rank, ternary, symmetric, flips, target, plus_after, margin, seed):
    """Walk at random until the rank is `target` or `flips` steps are done.

    Args:
        words: uint64 (3 · capacity), the factors; left at the last node.
        signs: int8 (capacity), signs of the products; left at the last node.
        rank: products (orbits when `symmetric`) in use; capacity must exceed it by `margin` + 1.
        ternary: coefficients -1, 0, 1; otherwise modulo 2.
        symmetric: rows are cyclic orbits.
        flips: steps at most; a flip that the ternary range forbids counts.
        target: rank to stop at.
        plus_after: steps without reduction before a plus transition.
        margin: how far plus transitions may raise the rank above the least one seen.
        seed: non-zero uint64.

    Returns:
        (rank at the end, least rank seen, words and signs of the last node that a reduction to it
        led to, flips made).
    """
    state = np.empty(1, np.uint64)
    state[0] = seed
    slots = len(words)
    head = np.empty(3 * BUCKETS, np.int32)
    after = np.empty(slots, np.int32)
    before = np.empty(slots, np.int32)
    active = np.empty(slots, np.int32)
    place = np.empty(slots, np.int32)
    count = build(rank, words, symmetric, head, after, before, active, place)
    least, best_words, best_signs = rank, words.copy(), signs.copy()
    waited = 0
    step = 0
    while step < flips and least > target:
        step += 1
        waited += 1
        if count == 0 or (waited > plus_after and rank < least + margin):
            waited = 0
            if rank < least + margin and rank > 1:
                rank = plus(rank, words, signs, ternary, symmetric, state)
                count = build(rank, words, symmetric, head, after, before, active, place)
            continue
        p = active[draw(state, count)]
        q = partner(p, words, symmetric, head, after, state)
        if q < 0:
            continue
        r, s = p // 3, q // 3
        turn = 1 + draw(state, 2)
        py, pz = 3 * r + (p + turn) % 3, 3 * r + (p + 3 - turn) % 3
        qy, qz = 3 * s + (q + turn) % 3, 3 * s + (q + 3 - turn) % 3
        if ternary:
            y_add, z_add = words[qy], words[pz]
            if signs[r] != signs[s]:
                z_add = negated(z_add)
            z_add = negated(z_add)
            if draw(state, 2):
                y_add, z_add = negated(y_add), negated(z_add)
            y_new, y_fits = ternary_sum(words[py], y_add)
            z_new, z_fits = ternary_sum(words[qz], z_add)
            if not (y_fits and z_fits):
                continue
        else:
            y_new, z_new = words[py] ^ words[qy], words[qz] ^ words[pz]
        count = unlink(py, words, symmetric, head, after, before, active, place, count)
        if ternary and starts_negative(y_new):
            y_new = negated(y_new)
            signs[r] = -signs[r]
        words[py] = y_new
        count = link(py, words, symmetric, head, after, before, active, place, count)
        count = unlink(qz, words, symmetric, head, after, before, active, place, count)
        if ternary and starts_negative(z_new):
            z_new = negated(z_new)
            signs[s] = -signs[s]
        words[qz] = z_new
        count = link(qz, words, symmetric, head, after, before, active, place, count)
        if y_new != ZERO and z_new != ZERO:
            continue
        # The higher number first: dropping it moves no product that is still to be dropped.
        first, second = (r, s) if r > s else (s, r)
        for product in (first, second):
            empty = False
            for slot in range(3 * product, 3 * product + 3):
                empty = empty or words[slot] == ZERO
            if empty:
                count = drop(
                    product, rank, words, signs, symmetric,
                    head, after, before, active, place, count,
                )  # fmt: skip
                rank -= 1
        waited = 0
        if rank <= least:
            # An equal rank counts too: it was reached by another way, so it is a new node.
            least = rank
            best_words[:] = words
            best_signs[:] = signs
    return rank, least, best_words, best_signs, step
