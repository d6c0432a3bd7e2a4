"""Predicted error growth against what the kernels really lose, on data kind and unkind."""

import numpy as np
import pytest

from tests.planner.machines import EAGER
from tests.targets.cpu.recipes import tile
from tiercel.frontends.numpy.product import Request, run
from tiercel.lower.program import lower
from tiercel.lower.program import run as interpreted
from tiercel.options import DEFAULT
from tiercel.planner import accuracy
from tiercel.planner.choose import make_plan
from tiercel.planner.machine import Machine
from tiercel.planner.plan import Plan
from tiercel.planner.problem import Problem
from tiercel.runtime import execute
from tiercel.schemes import get, names

TILES = {dtype: tile(dtype) for dtype in ("float32", "float64")}
HERE = Machine(**{**vars(EAGER), "tiles": TILES})


def plan_for(a: np.ndarray, b: np.ndarray, scheme: str | None, **options) -> Plan:
    (M, K), N = a.shape, b.shape[1]
    return make_plan(Problem(M, N, K, a.dtype.name, scheme=scheme, **options), HERE)


def rms_error(a: np.ndarray, b: np.ndarray, scheme: str) -> float:
    plan = plan_for(a, b, scheme, accuracy="fast")
    c = np.empty((a.shape[0], b.shape[1]), a.dtype)
    assert execute(plan, a, b, c, None)
    wide = np.complex128 if c.dtype.kind == "c" else np.float64
    return float(np.sqrt(np.mean(np.abs(c - a.astype(wide) @ b.astype(wide)) ** 2)))


@pytest.mark.parametrize("scheme", ["strassen", "strassen2", "strassen3", "winograd"])
@pytest.mark.parametrize("size", [(1000, 900, 1024), (777, 801, 1100)])
def test_growth_is_predicted(scheme: str, size: tuple[int, int, int]):
    rng = np.random.default_rng(0)
    M, N, K = size
    a, b = (rng.standard_normal(s).astype("f4") for s in ((M, K), (K, N)))
    measured = rms_error(a, b, scheme) / rms_error(a, b, "classical")
    assert 0.3 < measured / accuracy.growth(get(scheme), False) < 1.5


@pytest.mark.parametrize("name", names())
def test_growth_of_every_scheme_is_predicted(name: str):
    """In float32 arithmetic by the interpreter, which all kernels agree with."""
    scheme = get(name)
    rng = np.random.default_rng(0)
    blocks = max(1, 24 // max(scheme.grid))  # of about 24 × 64 × 24 elements, divided evenly
    M, K, N = (size * blocks * 4 for size in scheme.grid)
    a, b = (rng.standard_normal(s).astype("f4") for s in ((M, 8 * K), (8 * K, N)))
    exact = a.astype("f8") @ b.astype("f8")
    errors = [np.sqrt(np.mean((interpreted(lower(x), a, b) - exact) ** 2)) for x in (scheme, None)]
    assert 0.3 < errors[0] / errors[1] / accuracy.growth(scheme, False) < 1.5


@pytest.mark.parametrize("scheme", ["classical", "strassen"])
def test_growth_of_complex_products_is_predicted(scheme: str):
    """Over four real products by the classical kernel."""
    rng = np.random.default_rng(0)
    real = [rng.standard_normal((600, 600)).astype("f4") for _ in range(4)]
    a, b = real[0] + 1j * real[1], real[2] + 1j * real[3]
    four = 2 * rms_error(real[0], real[2], "classical")  # of both parts, of two products each
    found = rms_error(a, b, scheme) / four
    predicted = accuracy.growth(None if scheme == "classical" else get(scheme), True)
    assert 0.3 < found / predicted < 1.5


# --- component-wise error -------------------------------------------------------------------------

M, N, K = 1100, 530, 771


def normal(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return rng.standard_normal((M, K)), rng.standard_normal((K, N))


def uniform(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return rng.random((M, K)), rng.random((K, N))


def small_rows(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    a, b = normal(rng)
    a[: M // 2] *= 1e-4
    return a, b


def small_columns(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    a, b = normal(rng)
    b[:, N // 2 :] *= 1e-4
    return a, b


def small_half_of_k(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    a, b = normal(rng)
    a[:, : K // 2] *= 1e-4
    b[K // 2 :] *= 1e-4
    return a, b


def alternating_rows(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    a, b = normal(rng)
    a[::2] *= 1e-4
    return a, b


def graded(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    a, b = normal(rng)
    return a * np.logspace(0, -6, M)[:, None], b * np.logspace(0, -6, N)


def graded_along_k(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    a, b = normal(rng)
    return a * np.logspace(0, -6, K), b * np.logspace(0, -6, K)[:, None]


def outliers(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    a, b = normal(rng)
    for x in (a, b):
        x[rng.random(x.shape) < 0.01] *= 100
    return a, b


def huge_and_tiny(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    a, b = normal(rng)
    return a * 1e30, b * 1e-30


def huge(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    a, b = normal(rng)
    return a * 1e30, b * 1e4


def tiny(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    a, b = normal(rng)
    return a * 1e-30, b * 1e-7


def unlike_entries(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    a, b = normal(rng)
    return a * 10.0 ** rng.choice((-30, 30), a.shape), b


def nearly_cancelling(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The second half of K takes back what the first half gave, but for a millionth."""
    a, b = normal(rng)
    half = K // 2
    a[:, half : 2 * half] = a[:, :half]
    b[half : 2 * half] = -b[:half] * (1 + 1e-6)
    return a, b


KINDS = (
    normal, small_rows, small_columns, small_half_of_k, alternating_rows, graded,
    graded_along_k, outliers, huge_and_tiny, huge, tiny, unlike_entries, nearly_cancelling,
)  # fmt: skip


def component_error(kind, scheme: str | None) -> tuple[float, Plan]:
    """Largest |C − ref| / (|A|·|B|) in units of float32's epsilon, by the usual path."""
    a, b = (x.astype("f4") for x in kind(np.random.default_rng(0)))
    plan, c = plan_for(a, b, scheme), np.full((M, N), np.nan, np.float32)
    run(plan, a, b, c, Request(DEFAULT))
    wide_a, wide_b = a.astype("f8"), b.astype("f8")
    error = np.abs(c - wide_a @ wide_b) / (np.abs(wide_a) @ np.abs(wide_b))
    return float(error.max() / np.finfo("f4").eps), plan


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", [None, "strassen", "strassen2"])
def test_every_entry_is_as_accurate_as_its_terms_allow(kind, scheme: str | None):
    """Data that a scheme would harm are refused by its guard, and run the classical kernel."""
    error, plan = component_error(kind, scheme)
    assert plan.chosen.algorithm.startswith("strassen")
    assert error < 16


@pytest.mark.parametrize("scheme", [None, "classical", "strassen", "strassen2", "strassen3"])
def test_error_on_positive_data_grows_as_predicted(scheme: str | None):
    """Without cancellation |A|·|B| is the result: nothing hides the growth of a scheme's error."""
    error, plan = component_error(uniform, scheme)
    assert error < 16 * plan.chosen.growth


# --- the class ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*KINDS, uniform])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_no_data_exceed_the_class_at_default_settings(kind, dtype: str):
    """Plans of a machine where every level pays off; the errors of NumPy's product are the unit."""
    a, b = (x.astype(dtype) for x in kind(np.random.default_rng(0)))
    if dtype == "f8":  # exact sums of long double are slow
        a, b = a[::4], b[:, ::2]
    c = np.empty((a.shape[0], b.shape[1]), dtype)
    plan = plan_for(a, b, None)
    run(plan, a, b, c, Request(DEFAULT))
    assert plan.chosen.algorithm.startswith("strassen")
    wide = "f8" if dtype == "f4" else np.longdouble
    exact = a.astype(wide) @ b.astype(wide)
    ours, numpys = (_row_errors(x, exact) for x in (c, a @ b))
    limit = accuracy.bound("standard")
    assert np.sqrt(np.mean(ours**2)) <= limit * np.sqrt(np.mean(numpys**2))
    assert (ours <= 1.5 * limit * numpys).all()  # of a row: 1.5 is its scatter


def _row_errors(c: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """RMS error of each row, in units of the row's largest exact entry: no row is too small."""
    size = np.abs(exact).max(axis=1, keepdims=True)
    return np.sqrt(np.mean(((c - exact) / size) ** 2, axis=1)).astype("f8")
