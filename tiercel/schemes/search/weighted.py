"""The cost that annealing minimises: Φ, non-zeros, traffic and E, weighted; compiled."""

from __future__ import annotations

from tiercel.schemes.search.jit import njit

#: Exponent of the p-norm that stands for the maximum in E: within 1.6 x of it for 25 entries.
SHARPNESS = 8.0


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
