"""Which 2-D products the engine is asked for, and what happens when it refuses."""

import numpy as np
import pytest

from tiercel.api import linear, matmul
from tiercel.errors import TiercelRuntimeError

RNG = np.random.default_rng(11)


def integers(*shape: int, dtype="f4") -> np.ndarray:
    return RNG.integers(-3, 4, shape).astype(dtype)


def test_problem_describes_the_call(engine):
    a, b = integers(5, 7), integers(7, 3)
    matmul(a, np.asfortranarray(b), accuracy=2, workspace="1MiB", threads=3)
    (problem,) = engine.problems
    assert (problem.M, problem.N, problem.K, problem.dtype) == (5, 3, 7, "float32")
    assert (problem.layout_a, problem.layout_b, problem.layout_c) == ("row", "col", "row")
    assert (problem.accuracy, problem.workspace, problem.threads) == (2.0, 2**20, 3)
    assert (problem.epilogue, problem.bias, problem.static_b) == (None, False, False)


def test_linear_reads_the_weight_where_it_lies(engine):
    x, w, bias = integers(4, 6, 8), integers(5, 8), integers(5)
    y = linear(x, w, bias, epilogue="relu")
    np.testing.assert_array_equal(y, np.maximum(x @ w.T + bias, 0))
    (problem,) = engine.problems
    assert (problem.M, problem.layout_b, problem.bias, problem.epilogue) == (
        24,
        "col",
        True,
        "relu",
    )


def test_unsafe_data_run_the_classical_plan(engine):
    engine.safe = False
    a = integers(6, 6)
    np.testing.assert_array_equal(matmul(a, a), a @ a)
    assert engine.runs == ["strassen", "classical"]


def test_unsafe_data_are_refused_to_a_named_scheme(engine):
    engine.safe = False
    with pytest.raises(TiercelRuntimeError, match="scheme='strassen' is not safe"):
        matmul(integers(6, 6), integers(6, 6), scheme="strassen")


def test_vendor_plan_runs_numpy(engine):
    engine.algorithm = "vendor"
    a = integers(6, 6)
    np.testing.assert_array_equal(matmul(a, a), a @ a)
    assert engine.runs == []


def test_vendor_scheme_is_not_planned(engine):
    a = integers(6, 6)
    np.testing.assert_array_equal(matmul(a, a, scheme="vendor"), a @ a)
    assert engine.problems == []


def test_rows_of_a_batch_become_one_product(engine):
    x, w = integers(4, 5, 6), integers(6, 7)
    np.testing.assert_array_equal(matmul(x, w), x @ w)
    assert [(p.M, p.N, p.K) for p in engine.problems] == [(20, 7, 6)]
    repeated = np.broadcast_to(w, (4, 6, 7))
    np.testing.assert_array_equal(matmul(x, repeated), x @ w)
    assert len(engine.runs) == 2


def test_rows_that_a_view_cannot_join_stay_a_batch(engine):
    x, w = integers(4, 5, 6)[:, :3], integers(6, 7)
    np.testing.assert_array_equal(matmul(x, w), x @ w)
    assert len(engine.runs) == 4
    assert len(engine.problems) == 1, "equal slices share a plan"


def test_broadcast_batches_are_views(engine, monkeypatch):
    from tiercel.frontends.numpy import product

    a, b = integers(3, 1, 5, 6), integers(4, 6, 7)
    real = product.execute

    def execute(plan, x, y, out, bias):
        assert np.shares_memory(x, a)
        assert np.shares_memory(y, b)
        return real(plan, x, y, out, bias)

    monkeypatch.setattr(product, "execute", execute)
    np.testing.assert_array_equal(matmul(a, b), a @ b)
    assert len(engine.runs) == 12


def test_mixed_dtypes_are_multiplied_in_the_result_dtype(engine):
    a, b = integers(5, 6), integers(6, 7, dtype="i8")
    c = matmul(a, b)
    assert c.dtype == np.float64
    np.testing.assert_array_equal(c, a @ b)
    assert engine.problems[0].dtype == "float64"


def test_repeated_axes_are_converted_once(engine, monkeypatch):
    a = np.broadcast_to(integers(1, 6), (5, 6))
    b = integers(6, 7, dtype="f8")
    np.testing.assert_array_equal(matmul(a, b), a @ b)
    assert engine.problems[0].layout_a == "strided"


def test_matrix_times_vector_stays_with_the_blas(engine):
    a, v = integers(40, 50), integers(50)
    np.testing.assert_array_equal(matmul(a, v), a @ v)
    assert engine.problems == []
    matmul(a, v, scheme="classical")
    assert engine.problems[0].N == 1
