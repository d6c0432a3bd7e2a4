"""Own kernels warn where NumPy does: of overflow and invalid operations, and of nothing else."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

import tiercel
from tiercel.frontends.numpy import product

N = 200


@pytest.fixture(autouse=True)
def own_kernels(monkeypatch: pytest.MonkeyPatch, plan_everything: None) -> None:
    """Plans that choose the own classical kernel."""
    plan_for = product.plan_for
    monkeypatch.setattr(product, "plan_for", lambda problem: classical(plan_for, problem))
    monkeypatch.setattr(product, "_plan", product._plan.__wrapped__)


def classical(plan_for, problem):
    plan = plan_for(replace(problem, scheme="classical", must_use=True))
    assert plan.chosen.algorithm == "classical"
    return plan


def warned(multiply, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        c = multiply(a, b)
    return c, [str(w.message).split(" encountered")[0] for w in caught]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_overflow(dtype: str):
    large = np.sqrt(np.finfo(dtype).max / 10).astype(dtype)
    a = np.full((N, N), large)
    for _ in range(3):  # calls that are repeated go another way
        c, told = warned(tiercel.matmul, a, a)
        assert told == ["overflow"]
        assert np.isposinf(c).all()
        assert warned(tiercel.matmul, a[:150], np.eye(N, dtype=dtype))[1] == []
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        tiercel.matmul(a, a)
    with np.errstate(over="ignore"):
        assert warned(tiercel.matmul, a, -a)[1] == []


def test_a_float16_that_overflows_alone():
    a, b = np.zeros((N, N), np.float16), np.zeros((N, N), np.float16)
    a[-1] = -30
    b[:, -1] = 30
    c, told = warned(tiercel.matmul, a, b)
    assert told == ["overflow"]
    assert np.isneginf(c[-1, -1])
    assert np.isfinite(c).sum() == c.size - 1


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_invalid_operations(dtype: str):
    a, b = np.zeros((N, N), dtype), np.ones((N, N), dtype)
    a[:, 3] = np.inf
    b[3, :100] = 0
    for _ in range(3):
        c, told = warned(tiercel.matmul, a, b)
        expected, numpys = warned(np.matmul, a, b)
        np.testing.assert_array_equal(c, expected)
        assert told == numpys == ["invalid value"]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_nan_and_inf_that_came_in_are_no_reason(dtype: str):
    a, b = np.ones((N, N), dtype), np.ones((N, N), dtype)
    a[3, 4], a[5, 6] = np.nan, np.inf
    c, told = warned(tiercel.matmul, a, b)
    assert told == []
    assert np.isnan(c).sum() == np.isinf(c).sum() == N


@pytest.mark.parametrize("shape", [(N, N, N), (33, 501, 17), (129, 64, 255)])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64"])
def test_ordinary_data_raise_nothing(dtype: str, shape: tuple[int, int, int]):
    M, K, N = shape
    a, b = np.ones((M, K), dtype), np.ones((K, N), dtype)
    with np.errstate(divide="raise", over="raise", invalid="raise"):
        for _ in range(2):
            assert (tiercel.matmul(a, b) == K).all()
            tiercel.matmul(a, b, bias=b[0])
