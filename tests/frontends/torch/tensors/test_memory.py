"""Reading a tensor's memory leaves the tensor as it was."""

import torch

import tiercel
from tiercel.frontends.torch.tensors.memory import as_array


def test_storage_can_still_be_resized(kernel_runs):
    x, w, bias = torch.randn(4, 3), torch.randn(5, 3), torch.randn(5)
    y = tiercel.linear(x, w, bias)
    assert kernel_runs
    for tensor in (x, w, bias, y):
        tensor.untyped_storage().resize_(0)


def test_an_array_keeps_its_memory():
    array = as_array(torch.full((1000, 1000), 7.0))
    others = [torch.zeros(1000, 1000) for _ in range(3)]
    assert (array == 7).all()
    assert len(others) == 3


def test_lazy_views_are_resolved():
    z = torch.tensor([[1 + 2j]])
    assert as_array(z.conj())[0, 0] == 1 - 2j
    assert as_array(z.conj().imag)[0, 0] == -2
