"""Predicted error growth against hand values and against rounding that really happens."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiercel.schemes import (
    Scheme,
    classical,
    error_bound,
    get,
    names,
    phi,
    prefactor,
    rms_growth,
    stability_factor,
    tensor,
    worst_case_growth,
)


def test_hand_values():
    assert phi(get("strassen")) == 32
    assert phi(get("winograd")) == 56
    assert prefactor(get("strassen")) == 8
    assert prefactor(classical(2, 3, 2)) == 5
    assert worst_case_growth(get("winograd")) == 9
    assert worst_case_growth(classical(4, 3, 2)) == 1
    assert rms_growth() == rms_growth(classical(3, 4, 5)) == 1


@settings(deadline=None, max_examples=20)
@given(st.sampled_from([name for name in names() if get(name).rank < 50]).map(get))
def test_figures_are_their_formulas(scheme):
    """Term by term in fractions, as the papers write them."""
    u, v, w = (x.fractions().tolist() for x in (scheme.U, scheme.V, scheme.W))

    def square(row: list[Fraction]) -> Fraction:
        return sum((x * x for x in row), Fraction(0))

    def absolute(row: list[Fraction]) -> Fraction:
        return sum(map(abs, row), Fraction(0))

    def terms(row: list[Fraction]) -> int:
        return sum(x != 0 for x in row)

    rows = list(zip(u, v, w, strict=True))
    assert phi(scheme) == sum(square(x) * square(y) * square(z) for x, y, z in rows)
    outputs = range(scheme.m * scheme.n)
    assert stability_factor(scheme) == max(
        sum(abs(z[c]) * absolute(x) * absolute(y) for x, y, z in rows) for c in outputs
    )
    assert prefactor(scheme) == max(
        sum(z[c] != 0 for *_, z in rows) + max(terms(x) + terms(y) for x, y, z in rows if z[c])
        for c in outputs
    )
    assert scheme.nonzeros == tuple(sum(map(terms, x)) for x in (u, v, w))


def test_levels_are_the_tensor_product():
    levels = get("strassen"), get("laderman")
    both = tensor(*levels)
    assert rms_growth(*levels) == rms_growth(both)
    assert worst_case_growth(*levels) == worst_case_growth(both)
    assert math.prod(map(stability_factor, levels)) == stability_factor(both)


def test_bound_holds_for_float32():
    rng = np.random.default_rng(1)
    a, b = (rng.uniform(-1, 1, (64, 64)).astype(np.float32) for _ in range(2))
    reference = a.astype(np.float64) @ b.astype(np.float64)
    for name in ("strassen", "winograd", "accurate"):
        error = np.abs(_run(get(name), a, b) - reference).max()
        assert error <= error_bound(64, get(name)) * 2.0**-24


@pytest.mark.parametrize(
    "name", ["strassen", "winograd", "accurate", "laderman", "hopcroft-kerr-3x2x3", "strassen2"]
)
def test_rms_growth_is_what_rounding_operands_to_float32_gives(name):
    """The model's own setting: combinations rounded once, everything after it exact enough."""
    scheme = get(name)
    measured = _rms_error(scheme, rounded=np.float32) / _rms_error(
        classical(*scheme.grid), rounded=np.float32
    )
    assert measured == pytest.approx(rms_growth(scheme), rel=0.06)


@pytest.mark.parametrize("name", ["strassen", "winograd", "accurate", "laderman"])
def test_rms_growth_predicts_all_float32_arithmetic(name):
    """Sums and products rounded too: the prediction is of the right size, not exact."""
    scheme = get(name)
    rng = np.random.default_rng(2)
    m, k, n = scheme.grid
    a = rng.standard_normal((m * 40, k * 40)).astype(np.float32)
    b = rng.standard_normal((k * 40, n * 40)).astype(np.float32)
    reference = a.astype(np.float64) @ b.astype(np.float64)
    errors = [_rms(_run(x, a, b) - reference) for x in (scheme, classical(m, k, n))]
    assert errors[0] / errors[1] == pytest.approx(rms_growth(scheme), rel=0.3)


def _rms_error(scheme: Scheme, rounded: type[np.floating]) -> float:
    rng = np.random.default_rng(3)
    m, k, n = scheme.grid
    a, b = rng.standard_normal((m * 48, k * 48)), rng.standard_normal((k * 48, n * 48))
    return _rms(_run(scheme, a, b, rounded) - a @ b)


def _run(
    scheme: Scheme, a: np.ndarray, b: np.ndarray, rounded: type[np.floating] | None = None
) -> np.ndarray:
    """One level of `scheme` in the operands' dtype, combinations rounded to `rounded` first."""
    m, k, n = scheme.grid
    u, v, w = (x.floats(a.dtype) for x in (scheme.U, scheme.V, scheme.W))
    left = np.tensordot(u, _blocks(a, m, k), 1)
    right = np.tensordot(v, _blocks(b, k, n), 1)
    if rounded is not None:
        left, right = (x.astype(rounded).astype(x.dtype) for x in (left, right))
    blocks = np.tensordot(w.T, left @ right, 1)
    rows, columns = blocks.shape[1:]
    return blocks.reshape(m, n, rows, columns).swapaxes(1, 2).reshape(m * rows, n * columns)


def _blocks(matrix: np.ndarray, rows: int, columns: int) -> np.ndarray:
    height, width = matrix.shape[0] // rows, matrix.shape[1] // columns
    blocks = matrix.reshape(rows, height, columns, width).swapaxes(1, 2)
    return blocks.reshape(rows * columns, height, width)


def _rms(error: np.ndarray) -> float:
    return math.sqrt(np.mean(error.astype(np.float64) ** 2))
