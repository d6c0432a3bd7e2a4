"""A packed operand that has changed, in Triton's interpreter."""

import pytest
import torch

from tiercel.schemes import get
from tiercel.targets.gpu import pack, product, verdict


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
