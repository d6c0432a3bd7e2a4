"""The probe that reads operands once, in Triton's interpreter."""

import numpy as np
import pytest
import torch

from tests.planner.test_accuracy import KINDS
from tiercel.frontends.torch.probe import smallest, tolerance
from tiercel.targets.gpu import freivalds

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    wide = torch.promote_types(dtype, torch.float32)
    return torch.randn(shape, dtype=wide).to(dtype)


@pytest.fixture(autouse=True)
def same_numbers():
    torch.manual_seed(0)


def replaced(a, b, c, bias=None, growth: float = 1.0) -> bool:
    assert freivalds.fits(a, b, c, bias)
    limits = tolerance(a.dtype, growth), smallest(a, b)
    return bool(freivalds.replace_where_wrong(a, b, c, bias, *limits))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("by_column", [False, True])
def test_rounding_errors_pass(dtype: torch.dtype, by_column: bool):
    a, b = normal(20, 600, dtype=dtype), normal(600, 70, dtype=dtype)
    b = b.mT.contiguous().mT if by_column else b
    c = a @ b
    before = c.clone()
    assert not any(replaced(a, b, c) for _ in range(2))
    assert torch.equal(c, before)


@pytest.mark.parametrize("kind", KINDS)
def test_rounding_errors_of_unkind_data_pass(kind):
    a, b = (torch.tensor(x.astype("f4")[:40, :40]) for x in kind(np.random.default_rng(0)))
    assert not any(replaced(a, b, a @ b) for _ in range(2))


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-3), (torch.float16, 0.2)])
def test_a_wrong_block_is_replaced(dtype: torch.dtype, error: float):
    a, b, bias = (normal(*size, dtype=dtype) for size in ((60, 80), (80, 90), (90,)))
    sound = (a.float() @ b.float() + bias.float()).to(dtype)
    for i in range(3):
        c = sound.clone()
        c[5 * i : 5 * i + 32, 9 * i : 9 * i + 32] *= 1 + error
        assert replaced(a, b, c, bias, 8.0)
        torch.testing.assert_close(c, sound, atol=0.02 if dtype is torch.float16 else 1e-4, rtol=0)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), 1e30])
def test_one_wrong_entry_is_replaced_and_the_next_probe_is_another(wrong: float):
    a, b = normal(40, 50), normal(50, 60)
    c = a @ b
    c[17, 3] = wrong
    assert replaced(a, b, c, growth=64.0)
    torch.testing.assert_close(c, a @ b)
    (state,) = freivalds._states.values()
    before = state.tolist()
    assert not any(before[:1] + before[2:]), "the next probe counts its thread blocks from 0"
    assert not replaced(a, b, c)
    assert state[1] == before[1] + 1


def test_the_host_hears_of_a_wrong_product():
    a, b = normal(40, 50), normal(50, 60)
    c, heard = a @ b, torch.zeros((), dtype=torch.bool)
    limits = tolerance(a.dtype, 1.0), smallest(a, b)
    freivalds.replace_where_wrong(a, b, c, None, *limits, heard)
    assert not heard
    c[3] *= 1.1
    freivalds.replace_where_wrong(a, b, c, None, *limits, heard)
    assert heard
    freivalds.replace_where_wrong(a, b, c, None, *limits, heard)
    assert heard, "it is the host that takes note and makes it false again"


def test_rows_that_are_not_finite_are_not_judged():
    a, b = normal(20, 30), normal(30, 10)
    a[5, 7] = float("nan")
    c = a @ b
    assert not replaced(a, b, c)
    c[6] *= 1.01
    assert replaced(a, b, c)


def test_a_bias_belongs_to_the_product():
    a, b, bias = normal(40, 30), normal(30, 100), 100 * normal(100)
    assert not replaced(a, b, a @ b + bias, bias)
    assert replaced(a, b, a @ b, bias)


def test_the_random_vector_has_both_signs_and_no_small_entries():
    """B = I and A = 0: what is wrong by one in a column is off by an entry of x."""
    zero, one = torch.zeros(128, 128), torch.eye(128)
    limits = 0.0, 0.499
    assert bool(freivalds.replace_where_wrong(zero, one, one.clone(), None, *limits))
    assert not bool(freivalds.replace_where_wrong(zero, one, one.clone(), None, 0.0, 1.51))
    assert not bool(freivalds.replace_where_wrong(one, one, one.clone(), None, 0.0, 1e-9))
    # over 128 equal errors signs cancel: |Σ x| is about 12, not 128
    assert not bool(freivalds.replace_where_wrong(zero, one, zero + 1, None, 0.0, 60.0))


@pytest.mark.parametrize(
    "operands",
    [
        (normal(2, 8, 8), normal(2, 8, 8)),
        (normal(8, 8).mT[:, :], normal(8, 8)),
        (normal(8, 8), normal(16, 16)[::2, ::2]),
        (normal(8, 8).cfloat(), normal(8, 8).cfloat()),
    ],
)
def test_other_layouts_are_left_to_torch(operands: tuple[torch.Tensor, torch.Tensor]):
    a, b = operands
    assert not freivalds.fits(a, b, a @ b, None)
