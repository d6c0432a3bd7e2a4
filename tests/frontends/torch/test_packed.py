"""A packed tensor stands for the operand it was made from."""

import numpy as np
import pytest
import torch

import tiercel
from tiercel.errors import TiercelTypeError, TiercelValueError


@pytest.fixture
def operands(kernel_runs):
    """b, and b packed by a machine on which everything gains."""
    b = torch.randn(40, 30)
    packed = tiercel.pack(b, scheme="classical")
    kernel_runs.clear()
    return b, packed


def test_it_describes_itself(operands):
    b, packed = operands
    assert (packed.shape, packed.ndim, packed.dtype) == (b.shape, 2, b.dtype)
    assert packed.device == b.device
    assert packed.nbytes > 0
    assert repr(packed).startswith("PackedTensor((40, 30), float32, for classical, ")


@pytest.mark.parametrize("shape", [(20, 40), (2, 10, 40)])
def test_products(operands, shape, kernel_runs):
    b, packed = operands
    a, bias = torch.randn(shape), torch.randn(30)
    torch.testing.assert_close(tiercel.matmul(a, packed), a @ b)
    torch.testing.assert_close(tiercel.linear(a, packed, bias), a @ b + bias)
    found = tiercel.matmul(a, packed, bias=bias, epilogue="relu")
    torch.testing.assert_close(found, torch.relu(a @ b + bias))
    assert kernel_runs == [(20, 30, 40)] * 3


def test_out_is_filled_and_returned(operands):
    b, packed = operands
    a, out = torch.randn(20, 40), torch.empty(20, 30)
    assert tiercel.matmul(a, packed, out) is out
    torch.testing.assert_close(out, a @ b)


def test_what_autograd_follows_reads_the_operand_itself(operands):
    b, packed = operands
    a = torch.randn(20, 40, requires_grad=True)
    tiercel.matmul(a, packed).sum().backward()
    torch.testing.assert_close(a.grad, torch.ones(20, 30) @ b.t())


def test_other_operands_are_torchs_to_judge(operands):
    b, packed = operands
    torch.testing.assert_close(tiercel.matmul(torch.ones(40), packed), torch.ones(40) @ b)
    with pytest.raises(RuntimeError):
        tiercel.matmul(torch.ones(20, 41), packed)
    with pytest.raises(RuntimeError):
        tiercel.matmul(torch.ones(20, 40, dtype=torch.float64), packed)


def test_a_changed_operand_is_refused(operands):
    b, packed = operands
    b.mul_(2)
    with pytest.raises(TiercelValueError, match=r"changed in place after packing .* pack it again"):
        tiercel.matmul(torch.ones(20, 40), packed)


@pytest.mark.parametrize(
    "b",
    [
        torch.ones(4, 4, requires_grad=True),
        torch.ones(2, 4, 4),
        torch.ones(4, 4, dtype=torch.int32),
        torch.ones(4, 4, device="meta"),
    ],
)
def test_what_cannot_be_packed(b):
    with pytest.raises(TiercelTypeError, match="b cannot be packed: "):
        tiercel.pack(b)


def test_a_packed_tensor_is_no_element_of_an_array():
    packed = tiercel.pack(torch.ones(3, 3))
    for call in (lambda: tiercel.matmul(np.ones((3, 3)), packed), lambda: tiercel.pack(packed)):
        with pytest.raises(TiercelTypeError, match="PackedTensor"):
            call()
