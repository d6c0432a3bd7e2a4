"""The verdict on data and packed operands, in Triton's interpreter."""

import math
from dataclasses import replace

import pytest
import torch

from tiercel.lower.program import lower
from tiercel.schemes import get
from tiercel.targets.gpu import guard, pack, product, verdict

LIMITS = guard.limits(lower(get("winograd")), "bfloat16", 256)
FLOOR = 2.0**-13


@pytest.fixture(scope="module")
def b() -> torch.Tensor:
    return torch.randn(256, 64, generator=torch.Generator().manual_seed(0)).bfloat16()


@pytest.fixture
def a() -> torch.Tensor:
    return torch.randn(64, 256, generator=torch.Generator().manual_seed(1)).bfloat16()


def judged(a, b, now=None, limits=LIMITS, floor=FLOOR) -> list[int]:
    """The flags after the verdict on a and b, which may ``now`` be another matrix."""
    flags = torch.tensor([0, 7], dtype=torch.int32)
    record, samples = verdict.record_of(b, along_rows=False), verdict.samples_of(b)
    verdict.judge(flags, a, record, b if now is None else now, samples, limits, floor)
    return flags.tolist()


def test_ordinary_data_pass(a, b):
    assert judged(a, b) == judged(a.mT.contiguous().mT, b) == [0, 7]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_values_that_are_not_finite_do_not(a, b, value):
    a[3, 5] = value
    assert judged(a, b) == [1, 7]


def test_scales(a, b):
    assert judged(a * 1e-7, b) == [1, 7]  # below float16
    assert judged(a * 1e-7, b, floor=0.0) == [0, 7]
    a[:3] *= 1000
    assert judged(a, b) == [1, 7]
    assert judged(a, b, limits=replace(LIMITS, limit=math.inf)) == [0, 7]


def test_a_changed_operand_is_noticed(a, b):
    assert judged(a, b, now=b.clone()) == [0, 7]
    assert judged(a, b, now=b * 2) == [1, 7]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_changed_packed_operand_gives_the_classical_product_of_what_it_is_now(dtype, transposed):
    left, right = torch.randn(64, 128, dtype=dtype), torch.randn(128, 64, dtype=dtype)
    right = right.mT.contiguous().mT if transposed else right
    packed, samples = pack(right, get("strassen")), verdict.samples_of(right)
    for change in (lambda: None, lambda: right.data.mul_(3)):
        change()
        verdict.check(right, packed.extremes, samples)
        found = product(left, packed, get("strassen"))
        torch.testing.assert_close(found, left @ right, rtol=1e-4, atol=1e-3)


def test_samples_meet_rows_and_columns_all_over():
    places, values = verdict.samples_of(torch.arange(300.0 * 200).view(300, 200))
    assert torch.equal(places.float(), values)
    assert len(set((places // 200).tolist())) > 200
    assert len(set((places % 200).tolist())) > 100
