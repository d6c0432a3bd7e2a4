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
start with +1 and the sign stays with the product.

For schemes with cyclic symmetry one row stands for the three products a⊗b⊗c, b⊗c⊗a and c⊗a⊗b
(J. Moosbauer, M. Poole, *Flip graphs with symmetry and new matrix multiplication schemes*, 2025).
Factors then match across all three positions, and a flip acts on whole orbits.
"""

from __future__ import annotations

import numpy as np

from tiercel.schemes.search.jit import njit
from tiercel.schemes.search.table import (
    HALF_WORD,
    draw,
    empty_table,
    fill,
    link,
    partner,
    unlink,
)

ONE = np.uint64(1)
ZERO = np.uint64(0)


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
def change(table, signs, slot, word, ternary, count):
    """Give a slot another word, the sign of which goes to its product; whether it is zero."""
    count = unlink(table, slot, count)
    if ternary and starts_negative(word):
        word = negated(word)
        signs[slot // 3] = -signs[slot // 3]
    table.words[slot] = word
    return link(table, slot, count), word == ZERO


@njit
def drop(table, signs, r, rank, count):
    """Remove product r; the last product takes its number."""
    last = rank - 1
    for x in range(3):
        count = unlink(table, 3 * r + x, count)
    if r == last:
        return count
    for x in range(3):
        count = unlink(table, 3 * last + x, count)
    signs[r] = signs[last]
    for x in range(3):
        table.words[3 * r + x] = table.words[3 * last + x]
        count = link(table, 3 * r + x, count)
    return count


@njit
def drop_empty(table, signs, r, s, rank, count):
    """Remove those of two products of which a factor is zero; the new rank and number of active."""
    # The higher number first: dropping it moves no product that is still to be dropped.
    for product in (max(r, s), min(r, s)):
        empty = False
        for slot in range(3 * product, 3 * product + 3):
            empty = empty or table.words[slot] == ZERO
        if empty:
            count = drop(table, signs, product, rank, count)
            rank -= 1
    return rank, count


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
    table = empty_table(words, symmetric)
    count = fill(table, rank)
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
                count = fill(table, rank)
            continue
        p = table.active[draw(state, count)]
        q = partner(table, p, state)
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
        count, y_empty = change(table, signs, py, y_new, ternary, count)
        count, z_empty = change(table, signs, qz, z_new, ternary, count)
        if not (y_empty or z_empty):
            continue
        rank, count = drop_empty(table, signs, r, s, rank, count)
        waited = 0
        if rank <= least:
            # An equal rank counts too: it was reached by another way, so it is a new node.
            least = rank
            best_words[:] = words
            best_signs[:] = signs
    return rank, least, best_words, best_signs, step
