"""The second stage's inner loop: annealing at fixed rank, compiled.

Two kinds of moves lead from a scheme to another of the same rank: flips (see `walk`), here with any
dyadic multiplier,

    a ⊗ b ⊗ c + a ⊗ b' ⊗ c'  =  a ⊗ (b + λ b') ⊗ c + a ⊗ b' ⊗ (c' - λ c),

and elementary changes of basis, which add λ times one row or column of A, B or C to another (de
Groote 1978). Coefficients are float64 that hold integers or dyadic fractions exactly.
"""

from __future__ import annotations

import numpy as np

from tiercel.schemes.search.jit import njit
from tiercel.schemes.search.rows import all_allowed, allowed, fill_keys, key
from tiercel.schemes.search.table import draw
from tiercel.schemes.search.weighted import product_cost, spread_errors, total_cost, worst

#: One move in so many changes the basis; it costs as much as R flips.
BASIS_EVERY = 60

#: Entries of the longest row: blocks of the largest grid that is searched.
LONGEST_ROW = 25 * 25


@njit
def anneal(factors, grid, weights, finest, largest, steps, hot, cold, seed):
    """Minimise a weighted cost by Metropolis moves while the temperature falls from hot to cold.

    Args:
        factors: three float64 arrays (R, m·k), (R, k·n), (R, m·n); left at the last scheme.
        grid: (m, k, n).
        weights: float64 (4,), of Φ, non-zeros, traffic and E.
        finest: coefficients are multiples of it: 1.0, 0.5, ...
        largest: and at most so large.
        steps: moves tried.
        hot: first temperature, in units of the cost.
        cold: last temperature.
        seed: non-zero uint64.

    Returns:
        (least cost, its three arrays).
    """
    state = np.empty(1, np.uint64)
    state[0] = seed
    errors = np.zeros(factors[2].shape[1])
    cost = total_cost(factors, weights, errors)
    rank = len(factors[0])
    keys = np.empty((3, rank), np.uint64)
    fill_keys(factors, keys)
    best, best_factors = cost, (factors[0].copy(), factors[1].copy(), factors[2].copy())
    saved = (factors[0].copy(), factors[1].copy(), factors[2].copy())
    scratch = (saved, np.zeros_like(errors), np.empty(LONGEST_ROW), np.empty(LONGEST_ROW))
    cooling = (cold / hot) ** (1.0 / max(1, steps))
    heat = hot
    for _ in range(steps):
        heat *= cooling
        # The exponential distribution of what may be lost, drawn once per move.
        slack = -heat * np.log((draw(state, 1 << 30) + 1.0) / (1 << 30))
        if draw(state, BASIS_EVERY) == 0:
            cost = turn(
                factors, grid, weights, finest, largest, slack, cost, errors, keys, scratch, state
            )
        else:
            x = draw(state, 3)
            r = draw(state, rank)
            s = alike(keys, x, r, state)
            if s >= 0:
                cost = flip(
                    factors, x, r, s, weights, finest, largest, slack, cost, errors, keys, scratch,
                    state,
                )  # fmt: skip
        if cost < best - 1e-9:
            best = cost
            for x in range(3):
                best_factors[x][:] = factors[x]
    return best, best_factors


@njit
def turn(factors, grid, weights, finest, largest, slack, cost, errors, keys, scratch, state):
    """Try a random elementary change of basis; returns the cost afterwards."""
    saved, old_errors = scratch[0], scratch[1]
    dimension = draw(state, 3)
    size = grid[dimension]
    if size < 2:
        return cost
    i = draw(state, size)
    j = draw(state, size - 1)
    j += j >= i
    scale = 1.0 if draw(state, 2) else -1.0
    if finest < 1.0 and draw(state, 2):
        scale *= 0.5
    for x in range(3):
        saved[x][:] = factors[x]
    old_errors[:] = errors
    elementary(factors, grid, dimension, i, j, scale)
    new = np.inf
    if all_allowed(factors, finest, largest):
        new = total_cost(factors, weights, errors)
    if new <= cost + slack:
        fill_keys(factors, keys)
        return new
    for x in range(3):
        factors[x][:] = saved[x]
    errors[:] = old_errors
    return cost


@njit
def elementary(factors, grid, dimension, i, j, scale):
    """Entry j of a dimension is added, times `scale`, to entry i; see `change_basis`."""
    k, n = grid[1], grid[2]
    if dimension == 0:
        add_row(factors[0], k, i, j, scale)
        add_row(factors[2], n, j, i, -scale)
    elif dimension == 1:
        add_row(factors[1], n, i, j, scale)
        add_column(factors[0], k, j, i, -scale)
    else:
        add_column(factors[2], n, i, j, scale)
        add_column(factors[1], n, j, i, -scale)


@njit
def add_row(factor, width, to, source, scale):
    """Add a multiple of one row to another in every matrix of a factor."""
    for r in range(len(factor)):
        for x in range(width):
            factor[r, to * width + x] += scale * factor[r, source * width + x]


@njit
def add_column(factor, width, to, source, scale):
    """Add a multiple of one column to another in every matrix of a factor."""
    for r in range(len(factor)):
        for x in range(0, factor.shape[1], width):
            factor[r, x + to] += scale * factor[r, x + source]


@njit
def flip(
    factors, x, r, s, weights, finest, largest, slack, cost, errors, keys, scratch, state
):  # fmt: skip
    """Try to flip products r and s, alike in factor x; returns the cost afterwards."""
    y, z = (x + 1) % 3, (x + 2) % 3
    if draw(state, 2):
        y, z = z, y
    ry, sy, rz, sz = factors[y][r], factors[y][s], factors[z][r], factors[z][s]
    # The shared factors may be multiples of each other: a_s = μ a_r.
    mu = 0.0
    for p in range(factors[x].shape[1]):
        if factors[x][r, p] != 0.0:
            mu = factors[x][s, p] / factors[x][r, p]
            break
    scale = multiplier(ry, sy, finest, state)
    if scale == 0.0:
        return cost
    _, old_errors, y_row, z_row = scratch
    before = product_cost(factors[0][r], factors[1][r], factors[2][r], weights)
    before += product_cost(factors[0][s], factors[1][s], factors[2][s], weights)
    if weights[3] != 0.0:
        old_errors[:] = errors
        spread_errors(factors[0][r], factors[1][r], factors[2][r], -1.0, errors)
        spread_errors(factors[0][s], factors[1][s], factors[2][s], -1.0, errors)
    y_row[: len(ry)] = ry
    z_row[: len(sz)] = sz
    for p in range(len(ry)):
        ry[p] += scale * sy[p]
    for p in range(len(sz)):
        sz[p] -= scale / mu * rz[p]
    change = np.inf
    if allowed(ry, finest, largest) and allowed(sz, finest, largest):
        after = product_cost(factors[0][r], factors[1][r], factors[2][r], weights)
        after += product_cost(factors[0][s], factors[1][s], factors[2][s], weights)
        change = after - before
        if weights[3] != 0.0:
            spread_errors(factors[0][r], factors[1][r], factors[2][r], 1.0, errors)
            spread_errors(factors[0][s], factors[1][s], factors[2][s], 1.0, errors)
            change += weights[3] * (worst(errors) - worst(old_errors))
    if change <= slack:
        keys[y, r] = key(ry)
        keys[z, s] = key(sz)
        return cost + change
    ry[:] = y_row[: len(ry)]
    sz[:] = z_row[: len(sz)]
    if weights[3] != 0.0:
        errors[:] = old_errors
    return cost


@njit
def alike(keys, x, r, state):
    """A random other product whose row of factor x is a multiple of that of product r, or -1."""
    found, seen = -1, 0
    for t in range(keys.shape[1]):
        if keys[x, t] == keys[x, r] and t != r:
            seen += 1
            if seen == 1 or draw(state, seen) == 0:
                found = t
    return found


@njit
def multiplier(row, added, finest, state):
    """λ for row + λ·added: one that cancels an entry if any can be, else ±1; 0 if not dyadic."""
    place = draw(state, len(row))
    for _ in range(len(row)):
        if row[place] != 0.0 and added[place] != 0.0:
            ratio = -row[place] / added[place]
            size = abs(ratio)
            for e in (1.0, 0.5, 2.0, 0.25, 4.0):
                if size == e and (finest < 1.0 or e == np.floor(e)):
                    return ratio
            return 0.0
        place = place + 1 if place + 1 < len(row) else 0
    return 1.0 if draw(state, 2) else -1.0
