"""Replacing a wrong result on the device, in Triton's interpreter."""

import pytest
import torch

from tiercel.targets.gpu.redo import redo_where


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.complex64])
@pytest.mark.parametrize("turned", [False, True])
def test_only_what_is_wrong_is_replaced(dtype: torch.dtype, turned: bool):
    g = torch.Generator().manual_seed(0)
    a, b = (torch.randint(-3, 4, size, generator=g).to(dtype) for size in ((40, 24), (24, 33)))
    a = a.mT.contiguous().mT if turned else a
    out = torch.full((40, 33), 7).to(dtype)
    redo_where(torch.tensor(False), a, b, out, None)
    assert (out == 7).all()
    redo_where(torch.tensor(True), a, b, out, None)
    torch.testing.assert_close(out, a @ b)


def test_a_bias_is_added():
    a, b, bias = torch.ones(40, 24), torch.ones(24, 33), torch.arange(33.0)
    out = torch.full((40, 33), 7.0)
    redo_where(torch.tensor(True), a, b, out, bias)
    torch.testing.assert_close(out, a @ b + bias)
