"""``verify=True``: sound products pass, corrupted ones are found, and fall back level by level."""

import logging
from collections.abc import Iterator

import numpy as np
import pytest

import tiercel
from tests.planner.test_accuracy import HERE, KINDS, uniform
from tiercel.frontends.numpy import product, verify
from tiercel.frontends.numpy.probe import agrees
from tiercel.planner.choose import make_plan
from tiercel.planner.plan import Plan
from tiercel.planner.problem import Problem
from tiercel.runtime import execute


def normal(*shape: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    real = rng.standard_normal(shape)
    return (real + 1j * rng.standard_normal(shape) if dtype[0] == "c" else real).astype(dtype)


# --- the probe ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("size", [(300, 200, 250), (64, 700, 40), (1, 5, 900), (900, 1, 1)])
def test_rounding_errors_pass(dtype: str, size: tuple[int, int, int]):
    M, N, K = size
    a, b = normal(M, K, dtype=dtype), normal(K, N, dtype=dtype, seed=1)
    assert all(agrees(a, b, a @ b, None, 1.0) for _ in range(20))


@pytest.mark.parametrize("kind", [*KINDS, uniform])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_rounding_errors_of_unkind_data_pass(kind, dtype: str):
    a, b = (np.ascontiguousarray(x.astype(dtype)) for x in kind(np.random.default_rng(0)))
    assert all(agrees(a, b, a @ b, None, 1.0) for _ in range(10))


def test_results_that_nearly_cancel_pass():
    a, b = normal(400, 300), normal(300, 200, seed=1)
    wide_a, wide_b = np.hstack([a, a]), np.vstack([b, np.float32(1e-4 - 1) * b])
    assert all(agrees(wide_a, wide_b, wide_a @ wide_b, None, 1.0) for _ in range(20))


@pytest.mark.parametrize("size", [(1024, 1024, 1024), (512, 2048, 900)])
def test_a_block_off_by_a_thousandth_is_always_found(size: tuple[int, int, int]):
    M, N, K = size
    rng = np.random.default_rng(0)
    a, b = normal(M, K), normal(K, N, seed=1)
    sound = a @ b
    found = 0
    for _ in range(100):
        c = sound.copy()
        i, j = rng.integers(0, M - 32), rng.integers(0, N - 32)
        c[i : i + 32, j : j + 32] *= 1.001
        found += not agrees(a, b, c, None, 8.0)
    assert found == 100


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1e30])
def test_one_wrong_entry_is_found(wrong: float):
    a, b = normal(200, 300), normal(300, 100, seed=1)
    c = a @ b
    c[17, 3] = wrong
    assert not agrees(a, b, c, None, 64.0)


def test_rows_that_are_not_finite_are_not_judged():
    a, b = normal(200, 300), normal(300, 100, seed=1)
    a[5, 7] = np.nan
    c = a @ b
    assert agrees(a, b, c, None, 1.0)
    c[6] *= 1.01
    assert not agrees(a, b, c, None, 1.0)


def test_zeros_and_underflow_pass():
    zero = np.zeros((100, 100), np.float32)
    assert agrees(zero, zero, zero, None, 1.0)
    a, b = normal(100, 100) * np.float32(1e-20), normal(100, 100, seed=1) * np.float32(1e-20)
    assert agrees(a, b, a @ b, None, 1.0)


def test_a_bias_belongs_to_the_product():
    a, b, bias = normal(200, 300), normal(300, 100, seed=1), 100 * normal(100)
    assert agrees(a, b, a @ b + bias, bias, 1.0)
    assert not agrees(a, b, a @ b, bias, 1.0)


# --- falling back ---------------------------------------------------------------------------------

#: Three levels fill whole register tiles of AVX2 as well as of AVX-512, as two do.
SIZE = 960


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[set[str], list[str]]]:
    """Algorithms whose results are corrupted, and those that ran, with plans that like levels."""
    corrupted: set[str] = set()
    ran: list[str] = []

    def run(plan: Plan, a, b, out, bias) -> bool:
        done = execute(plan, a, b, out, bias)
        ran.append(plan.chosen.algorithm)
        if plan.chosen.algorithm in corrupted:
            out[40:80, 10:60] *= 1.001
        return done

    monkeypatch.setattr(product, "execute", run)
    monkeypatch.setattr(product, "plan_for", lambda problem: make_plan(problem, HERE))
    product._plan.cache_clear()
    verify.forget()
    yield corrupted, ran
    product._plan.cache_clear()
    verify.forget()


def test_a_sound_product_runs_once(broken: tuple[set[str], list[str]]):
    a, b = normal(SIZE, SIZE), normal(SIZE, SIZE, seed=1)
    c = tiercel.matmul(a, b, verify=True)
    assert broken[1] == ["strassen3"]
    np.testing.assert_allclose(c, a @ b, atol=2e-3)


def test_levels_are_given_up_one_by_one_and_remembered(
    broken: tuple[set[str], list[str]], caplog: pytest.LogCaptureFixture
):
    corrupted, ran = broken
    corrupted |= {"strassen3", "strassen2"}
    a, b = normal(SIZE, SIZE), normal(SIZE, SIZE, seed=1)
    with caplog.at_level(logging.WARNING, "tiercel"):
        c = tiercel.matmul(a, b, verify=True)
    assert ran == ["strassen3", "strassen2", "strassen"]
    first, second = (record.getMessage() for record in caplog.records)
    assert "strassen3 exceeds accuracy='standard'" in first
    assert "run strassen2 (" in first
    assert "run strassen (" in second
    np.testing.assert_allclose(c, a @ b, atol=2e-3)
    tiercel.matmul(a, b, verify=True)
    assert ran[3:] == ["strassen"]
    tiercel.matmul(a[:-1], b, verify=True)
    assert ran[4] == "strassen3"


def test_numpy_is_the_last_resort(broken: tuple[set[str], list[str]]):
    corrupted, ran = broken
    corrupted |= {"strassen3", "strassen2", "strassen", "classical"}
    a, b = normal(SIZE, SIZE), normal(SIZE, SIZE, seed=1)
    np.testing.assert_array_equal(tiercel.matmul(a, b, verify=True), a @ b)
    assert ran == ["strassen3", "strassen2", "strassen", "classical"]
    last = tiercel.last_plan()
    assert last is not None
    assert last.chosen.algorithm == "vendor"


def test_without_verify_nothing_is_probed(broken: tuple[set[str], list[str]]):
    broken[0].add("strassen3")
    a, b = normal(SIZE, SIZE), normal(SIZE, SIZE, seed=1)
    tiercel.matmul(a, b)
    assert broken[1] == ["strassen3"]


def test_a_named_scheme_raises(broken: tuple[set[str], list[str]]):
    broken[0].add("strassen")
    a, b = normal(SIZE, SIZE), normal(SIZE, SIZE, seed=1)
    with pytest.raises(tiercel.TiercelRuntimeError, match="failed its verification"):
        tiercel.matmul(a, b, scheme="strassen", verify=True)


def test_a_batch_and_a_packed_operand_are_probed(broken: tuple[set[str], list[str]]):
    broken[0].update(("strassen", "strassen2", "strassen3"))
    a, b = normal(2, SIZE, SIZE), normal(2, SIZE, SIZE, seed=1)
    np.testing.assert_allclose(tiercel.matmul(a, b, verify=True), a @ b, atol=2e-3)
    packed = tiercel.pack(b[0], scheme="strassen")
    np.testing.assert_allclose(tiercel.matmul(a[0], packed, verify=True), a[0] @ b[0], atol=2e-3)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("into", [False, True])
def test_epilogues_follow_the_probe(broken: tuple[set[str], list[str]], dtype: str, into: bool):
    broken[0].add("strassen3")
    a, b = normal(SIZE, SIZE, dtype=dtype), normal(SIZE, SIZE, dtype=dtype, seed=1)
    bias = normal(SIZE)
    out = np.empty((SIZE, SIZE), dtype) if into else None
    options = {"epilogue": "relu", "bias": bias.astype(dtype), "verify": True}
    c = tiercel.matmul(a, b, out, **options)
    assert c.dtype == dtype
    assert (c is out) == into
    exact = np.maximum(a.astype("f8") @ b.astype("f8") + bias.astype(dtype), 0)
    np.testing.assert_allclose(c, exact, atol=2e-3, rtol=2e-3)
    assert "strassen2" in broken[1]


@tiercel.epilogue
def halved(acc):
    return {"y": acc * 0.5}


def test_a_traced_epilogue_follows_the_probe(broken: tuple[set[str], list[str]]):
    broken[0].add("strassen3")
    a, b = normal(SIZE, SIZE), normal(SIZE, SIZE, seed=1)
    y = tiercel.matmul(a, b, epilogue=halved, verify=True)["y"]
    np.testing.assert_allclose(y, 0.5 * (a @ b), atol=2e-3)
    assert broken[1] == ["strassen3", "strassen2"]


def test_linear_verifies_too(broken: tuple[set[str], list[str]]):
    broken[0].add("strassen3")
    x, w = normal(SIZE, SIZE), normal(SIZE, SIZE, seed=1)
    np.testing.assert_allclose(tiercel.linear(x, w, verify=True), x @ w.T, atol=2e-3)


def test_complex_plans_step_down_to_numpy():
    plan = make_plan(Problem(900, 900, 900, "complex64"), HERE)
    seen = []
    while plan.chosen.algorithm != "vendor":
        seen.append(plan.chosen.growth)
        plan = plan.one_level_down()
    assert seen == sorted(seen, reverse=True)
    assert len(seen) > 1
