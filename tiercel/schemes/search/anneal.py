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
from tiercel.schemes.search.table import draw

#: Exponent of the p-norm that stands for the maximum in E: within 1.6 x of it for 25 entries.
SHARPNESS = 8.0

#: One move in so many changes the basis; it costs as much as R flips.
BASIS_EVERY = 60


@njit
def product_cost(u, v, w, weights):
    """Φ, non-zeros and traffic of one product, weighted."""
    u_squares, v_squares, w_squares = 0.0, 0.0, 0.0
    u_terms, v_terms, w_terms = 0, 0, 0
    for x in u:
        u_squares += x * x
        u_terms += x != 0
    for x in v:
        v_squares += x * x
        v_terms += x != 0
    for x in w:
        w_squares += x * x
        w_terms += x != 0
    moved = 0
    if u_terms > 1:
        moved += u_terms + 1
    if v_terms > 1:
        moved += v_terms + 1
    if w_terms > 1:
        moved += w_terms
    return (
        weights[0] * u_squares * v_squares * w_squares
        + weights[1] * (u_terms + v_terms + w_terms)
        + weights[2] * moved
    )


@njit
def spread_errors(u, v, w, sign, errors):
    """Add sign · |w_c| ‖u‖₁ ‖v‖₁ to the error sum of each entry of C."""
    u_sum, v_sum = 0.0, 0.0
    for x in u:
        u_sum += abs(x)
    for x in v:
        v_sum += abs(x)
    for c in range(len(w)):
        errors[c] += sign * abs(w[c]) * u_sum * v_sum


@njit
def worst(errors):
    """The p-norm of the error sums, a smooth maximum."""
    total = 0.0
    for x in errors:
        total += x**SHARPNESS
    return total ** (1.0 / SHARPNESS)


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
def total_cost(factors, weights, errors):
    """The cost of a scheme; `errors` is filled with its error sums."""
    total = 0.0
    errors[:] = 0.0
    for r in range(len(factors[0])):
        total += product_cost(factors[0][r], factors[1][r], factors[2][r], weights)
        if weights[3] != 0.0:
            spread_errors(factors[0][r], factors[1][r], factors[2][r], 1.0, errors)
    if weights[3] != 0.0:
        total += weights[3] * worst(errors)
    return total


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
def all_allowed(factors, finest, largest):
    """Whether every row of U, V and W is allowed."""
    for x in range(3):
        for r in range(len(factors[x])):
            if not allowed(factors[x][r], finest, largest):
                return False
    return True


@njit
def fill_keys(factors, keys):
    """The keys of all rows, from nothing."""
    for x in range(3):
        for r in range(len(factors[x])):
            keys[x, r] = key(factors[x][r])


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
    rank = len(factors[0])
    errors = np.zeros(factors[2].shape[1])
    old_errors = np.zeros_like(errors)
    cost = total_cost(factors, weights, errors)
    keys = np.empty((3, rank), np.uint64)
    fill_keys(factors, keys)
    best, best_factors = cost, (factors[0].copy(), factors[1].copy(), factors[2].copy())
    saved = (factors[0].copy(), factors[1].copy(), factors[2].copy())
    y_row, z_row = np.empty(25 * 25), np.empty(25 * 25)
    cooling = (cold / hot) ** (1.0 / max(1, steps))
    heat = hot
    for _ in range(steps):
        heat *= cooling
        # The exponential distribution of what may be lost, drawn once per move.
        slack = -heat * np.log((draw(state, 1 << 30) + 1.0) / (1 << 30))
        if draw(state, BASIS_EVERY) == 0:
            dimension = draw(state, 3)
            size = grid[dimension]
            if size < 2:
                continue
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
                cost = new
                fill_keys(factors, keys)
            else:
                for x in range(3):
                    factors[x][:] = saved[x]
                errors[:] = old_errors
                continue
        else:
            x = draw(state, 3)
            r = draw(state, rank)
            wanted = keys[x, r]
            s, seen = -1, 0
            for t in range(rank):
                if keys[x, t] == wanted and t != r:
                    seen += 1
                    if seen == 1 or draw(state, seen) == 0:
                        s = t
            if s < 0:
                continue
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
                continue
            before = product_cost(factors[0][r], factors[1][r], factors[2][r], weights)
            before += product_cost(factors[0][s], factors[1][s], factors[2][s], weights)
            y_size, z_size = len(ry), len(rz)
            if weights[3] != 0.0:
                old_errors[:] = errors
                spread_errors(factors[0][r], factors[1][r], factors[2][r], -1.0, errors)
                spread_errors(factors[0][s], factors[1][s], factors[2][s], -1.0, errors)
            y_row[:y_size] = ry
            z_row[:z_size] = sz
            for p in range(y_size):
                ry[p] += scale * sy[p]
            for p in range(z_size):
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
            if change > slack:
                ry[:] = y_row[:y_size]
                sz[:] = z_row[:z_size]
                if weights[3] != 0.0:
                    errors[:] = old_errors
                continue
            cost += change
            keys[y, r] = key(ry)
            keys[z, s] = key(sz)
        if cost < best - 1e-9:
            best = cost
            for x in range(3):
                best_factors[x][:] = factors[x]
    return best, best_factors
