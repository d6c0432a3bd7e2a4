"""Data that a scheme must not touch: NaN, Inf, badly scaled rows and columns, huge values."""

import pytest
import torch

from tests.gpu.portable import COMPLEX, REAL, normal, wide
from tiercel.schemes import get
from tiercel.targets.gpu import product

pytestmark = pytest.mark.gpu

M, N, K = 300, 260, 280


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", REAL + COMPLEX)
def test_nan_and_inf_leave_the_vendor_s_pattern(dtype, poison):
    for place in ((0, 0), (150, 140), (299, 259)):
        a, b = normal(M, K, dtype=dtype), normal(K, N, dtype=dtype, seed=1)
        a[place] = poison
        expected = a @ b
        for levels in (1, 2):
            out = product(a, b, get("strassen"), levels)
            if dtype.is_complex:  # which part of a complex product is NaN and which Inf may differ
                assert torch.equal(out.isfinite(), expected.isfinite())
            else:
                assert torch.equal(out.isnan(), expected.isnan())
                assert torch.equal(out.isposinf(), expected.isposinf())
        b[place[1], place[0] % N] = poison
        assert torch.equal(product(a, b, get("strassen")).isfinite(), (a @ b).isfinite())


@pytest.mark.parametrize("scale", [1e-6, 1e6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.bfloat16])
def test_scaled_rows_and_columns_keep_component_wise_accuracy(dtype, scale):
    unit = torch.finfo(dtype).eps
    for line in (0, 149, 299):
        a, b = normal(M, K, dtype=dtype), normal(K, N, dtype=dtype, seed=1)
        a[line] *= scale
        b[:, line % N] *= scale
        out = product(a, b, get("strassen"), 2)
        bound = wide(a).abs() @ wide(b).abs()
        assert ((wide(out) - wide(a) @ wide(b)).abs() <= 4 * unit * bound).all()


def test_a_zero_row_stays_zero():
    a, b = normal(M, K, dtype=torch.float32), normal(K, N, dtype=torch.float32, seed=1)
    a[17] = 0
    assert not product(a, b, get("strassen"))[17].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_near_overflow_do_not_overflow(dtype):
    top = torch.finfo(dtype).max
    a = normal(M, K, dtype=dtype).clamp(-2, 2) * (top / 8)
    b = normal(K, N, dtype=dtype, seed=1) * 1e-4
    out = product(a, b, get("winograd"), 2)
    assert out.isfinite().all()
    assert torch.equal(out.isfinite(), (a @ b).isfinite())


def test_usual_data_go_through_the_scheme():
    """Rounding differs from the vendor's: the classical kernel did not overwrite it."""
    uniform = torch.rand(1000, 1000, device="cuda")
    for a in (normal(1000, 1000, dtype=torch.float32), uniform, uniform - 0.5, 1e-8 * uniform):
        by_scheme = product(a, a, get("strassen"), 2, guarded=False)
        assert torch.equal(product(a, a, get("strassen"), 2), by_scheme)


def test_a_refused_call_still_has_alpha_beta_and_c():
    a, b = normal(M, K, dtype=torch.float64), normal(K, N, dtype=torch.float64, seed=1)
    a[0] = 0
    c = normal(M, N, dtype=torch.float64, seed=2)
    out = product(a, b, get("strassen"), alpha=0.5, beta=2.0, c=c)
    torch.testing.assert_close(out, torch.addmm(c, a, b, beta=2.0, alpha=0.5))
