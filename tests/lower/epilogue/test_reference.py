"""The ready-made epilogues in float64 against their formulas, written out."""

import math

import numpy as np
import pytest
from scipy import special

from tiercel import epilogues

RNG = np.random.default_rng(3)
M, N = 5, 8
ACC = RNG.standard_normal((M, N))
ROW, COLUMN, TILE = RNG.standard_normal(N), RNG.standard_normal((M, 1)), RNG.standard_normal((M, N))
EVEN, ODD = ACC[:, 0::2], ACC[:, 1::2]
PHI = special.ndtr(ACC)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


ELEMENTWISE = {
    "bias": (ACC + ROW, {"bias": ROW}),
    "relu": (np.maximum(ACC, 0), {}),
    "gelu": (ACC * PHI, {}),
    "gelu_tanh": (gelu_tanh(ACC), {}),
    "silu": (ACC * sigmoid(ACC), {}),
    "swiglu": (EVEN * sigmoid(EVEN) * ODD, {}),
    "geglu": (EVEN * special.ndtr(EVEN) * ODD, {}),
    "residual": (ACC + TILE, {"residual": TILE}),
    "scale": (ACC * 0.3, {"scale": 0.3}),
    "dequantise": (ACC * COLUMN * ROW, {"scale_a": COLUMN, "scale_b": ROW}),
    "clamp": (np.clip(ACC, -0.5, 0.25), {"low": -0.5, "high": 0.25}),
    "rms_apply": (
        ACC / np.sqrt(COLUMN**2 / 7 + 1e-6),
        {"sum_of_squares": COLUMN**2, "width": 7},
    ),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_ready_made(name):
    truth, operands = ELEMENTWISE[name]
    result = getattr(epilogues, name)(ACC, **operands)
    assert result.shape == truth.shape
    np.testing.assert_allclose(result, truth, rtol=1e-13, atol=1e-15)


def test_rope_turns_each_pair_and_leaves_the_other_columns():
    angle = RNG.standard_normal((M, 2))
    turned = epilogues.rope(ACC, cos=np.cos(angle), sin=np.sin(angle))
    as_complex = (EVEN + 1j * ODD) * np.exp(1j * np.tile(angle, (1, 2)))
    np.testing.assert_allclose(turned[:, 0::2], as_complex.real, atol=1e-14)
    np.testing.assert_allclose(turned[:, 1::2], as_complex.imag, atol=1e-14)
    part = epilogues.rope(ACC, cos=np.cos(angle), sin=np.sin(angle), rotated=4)
    np.testing.assert_array_equal(part[:, :4], turned[:, :4])
    np.testing.assert_array_equal(part[:, 4:], ACC[:, 4:])


def test_statistics_of_the_residual_stream():
    found = epilogues.residual_rms(ACC, residual=TILE, gamma=ROW)
    hidden = ACC + TILE
    np.testing.assert_allclose(found["hidden"], hidden)
    np.testing.assert_allclose(found["out"], hidden * ROW)
    np.testing.assert_allclose(found["sum_of_squares"], (hidden**2).sum(1, keepdims=True))
    plain = epilogues.rms_statistics(ACC)
    np.testing.assert_allclose(plain["sum_of_squares"], (ACC**2).sum(1, keepdims=True))


def test_rms_statistics_then_apply_is_rmsnorm_around_a_product():
    gamma, weight = RNG.standard_normal(N), RNG.standard_normal((N, 6))
    first = epilogues.residual_rms(ACC, residual=TILE, gamma=gamma)
    second = epilogues.rms_apply(
        first["out"] @ weight, sum_of_squares=first["sum_of_squares"], width=N
    )
    x = ACC + TILE
    norm = x / np.sqrt((x**2).mean(1, keepdims=True) + 1e-6) * gamma
    np.testing.assert_allclose(second, norm @ weight, rtol=1e-12)


def test_cross_entropy_is_the_negative_log_softmax_at_the_target():
    target = np.array([[0], [7], [3], [3], [1]])
    found = epilogues.cross_entropy(1000 * ACC, target=target)
    loss = found["lse"] - found["picked"]
    truth = -np.take_along_axis(special.log_softmax(1000 * ACC, axis=1), target, 1)
    np.testing.assert_allclose(loss, truth, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("target", [-100, N])
def test_a_target_that_is_no_column_picks_nothing(target):
    found = epilogues.cross_entropy(ACC, target=np.full((M, 1), target))
    np.testing.assert_array_equal(found["picked"], np.zeros((M, 1)))


def test_batches_broadcast_and_reduce_by_matrix():
    acc = RNG.standard_normal((2, 3, M, N))
    rows, scalars = RNG.standard_normal((2, 1, 1, N)), RNG.standard_normal((3, 1, 1))
    np.testing.assert_allclose(epilogues.bias(acc, bias=rows), acc + rows)
    np.testing.assert_allclose(epilogues.scale(acc, scale=scalars), acc * scalars)
    lse = epilogues.cross_entropy(acc, target=np.zeros((M, 1), int))["lse"]
    np.testing.assert_allclose(lse[..., 0], special.logsumexp(acc, axis=-1))


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0, 0), (2, 0, 4)])
def test_empty_products(shape):
    assert epilogues.gelu(np.ones(shape)).shape == shape
    assert epilogues.swiglu(np.ones(shape)).shape == (*shape[:-1], shape[-1] // 2)
    found = epilogues.cross_entropy(np.ones(shape), target=np.zeros((shape[-2], 1), int))
    assert found["lse"].shape == (*shape[:-1], 1)
    if shape[-1] == 0:
        assert (found["lse"] == -np.inf).all()


def test_the_dtype_of_the_product_is_kept():
    for dtype in (np.float32, np.float16):
        assert epilogues.gelu(ACC.astype(dtype)).dtype == dtype
    assert epilogues.gelu(np.arange(6).reshape(2, 3)).dtype == np.float64


def test_infinities_and_nan_are_results_and_not_warnings():
    x = np.array([[np.inf, -np.inf, np.nan, 1e30, -1e30]])
    with np.errstate(all="raise"):
        for name in ("relu", "gelu", "gelu_tanh", "silu"):
            y = getattr(epilogues, name)(x)
            assert np.isnan(y[0, 2])
            assert y[0, 0] == np.inf
            np.testing.assert_array_equal(y[0, 3:], [1e30, 0])


def test_operands_may_be_lists_and_numpy_numbers():
    assert epilogues.bias([[1, 2]], bias=[3.0, 4]).tolist() == [[4, 6]]
    assert epilogues.scale([[1, 2]], scale=np.float32(2)).tolist() == [[2, 4]]
