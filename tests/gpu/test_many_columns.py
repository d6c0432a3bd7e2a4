"""Packed weights with more columns than a B that is combined in the call may have: heads."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import tiercel
from tests.gpu.portable import error, normal
from tiercel.planner.gpu.candidates import MOST_COMBINED

pytestmark = pytest.mark.gpu

ROWS, K, N = 4096, 4096, 128256
JUDGED = 64


def weight() -> torch.Tensor:
    assert N > MOST_COMBINED
    return normal(N, K, dtype=torch.bfloat16, seed=1) / K**0.5


def assert_as_good(found, x, w, limit):
    reference = x[:JUDGED].double() @ w.double().t()
    vendors = error(F.linear(x, w)[:JUDGED], reference)
    assert error(found[:JUDGED], reference) <= limit * vendors
    # The last columns are right by themselves.
    last = reference[:, MOST_COMBINED:]
    assert error(found[:JUDGED, MOST_COMBINED:], last) <= limit * vendors * 1.01


@pytest.mark.parametrize("rows", [ROWS, ROWS - 1])
@pytest.mark.parametrize("scheme", ["winograd", "lean-4x2x4"])
def test_packed(scheme, rows):
    w, x = weight(), normal(rows, K, dtype=torch.bfloat16)
    packed = tiercel.pack(w.t(), scheme=scheme)
    for _ in range(2):
        found = tiercel.matmul(x, packed, scheme=scheme)
        assert tiercel.last_plan().chosen.algorithm == scheme
        assert_as_good(found, x, w, 1.2)


def test_a_head_in_a_patched_model():
    head, x = nn.Linear(K, N, bias=False, device="meta"), normal(2 * ROWS, K, dtype=torch.bfloat16)
    head.weight = nn.Parameter(weight(), requires_grad=False)
    with torch.no_grad(), tiercel.patch(head, pack_weights=True) as report:
        for _ in range(2):
            found = head(x)
        assert tiercel.last_plan().chosen.algorithm not in ("vendor", "classical")
        assert report.packed_bytes > 0
    assert_as_good(found, x, head.weight.detach(), 1.2)


def test_unpacked_it_is_not_combined_in_the_call():
    w, x = weight(), normal(ROWS, K, dtype=torch.bfloat16)
    tiercel.stats(reset=True)
    found = tiercel.linear(x, w)
    assert set(tiercel.stats()) <= {"classical", "torch", "vendor"}
    assert_as_good(found, x, w, 1.05)
