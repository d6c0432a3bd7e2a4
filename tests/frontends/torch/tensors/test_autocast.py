"""``torch.autocast``: the conversions are torch's, whoever multiplies."""

import pytest
import torch
from torch.nn import functional as F

import tiercel


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_operands_are_converted_and_gradients_are_not(dtype, kernel_runs):
    def gradients(linear):
        for tensor in (w, bias):
            tensor.grad = None
        with torch.autocast("cpu", dtype=dtype):
            y = linear(x, w, bias)
        y.float().sum().backward()
        return y, w.grad, bias.grad

    x = torch.randn(4, 16, dtype=torch.bfloat16)
    w, bias = torch.randn(8, 16, requires_grad=True), torch.randn(8, requires_grad=True)
    ours, expected = gradients(tiercel.linear), gradients(F.linear)
    assert kernel_runs[0] == (4, 8, 16)
    for mine, torchs in zip(ours, expected, strict=True):
        torch.testing.assert_close(mine, torchs)


def test_float64_is_left_alone(kernel_runs):
    x = torch.randn(4, 4, dtype=torch.float64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert tiercel.matmul(x, x).dtype is torch.float64
        with pytest.raises(RuntimeError):
            tiercel.matmul(x, x.float())


def test_mixed_dtypes_are_refused_outside(kernel_runs):
    with pytest.raises(RuntimeError):
        tiercel.linear(torch.ones(4, 4).bfloat16(), torch.ones(4, 4))
