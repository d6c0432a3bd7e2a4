"""``out=``: as torch's, except that nothing is resized."""

import pytest
import torch

import tiercel


@pytest.mark.parametrize("size", [8, 64])
def test_out_receives_the_result_and_is_returned(size, kernel_runs):
    a = torch.randn(size, size, dtype=torch.float64)
    for out in (
        torch.empty_like(a),
        torch.empty_like(a).t(),
        torch.empty(size, 2 * size).double()[:, ::2],
    ):
        assert tiercel.matmul(a, a, out=out) is out
        torch.testing.assert_close(out, a @ a)
        assert tiercel.linear(a, a, a[0], out=out) is out
        torch.testing.assert_close(out, a @ a.t() + a[0])
    assert len(kernel_runs) == 6


@pytest.mark.parametrize("size", [4, 300])
def test_out_may_overlap_the_operands(size):
    a = torch.randn(size, size, dtype=torch.float64)
    product, both = a @ a, a.clone()
    tiercel.matmul(both, both, both)
    torch.testing.assert_close(both, product)


@pytest.mark.parametrize("shape", [(3, 1), (3, 3), (2, 2, 2), (2,)])
def test_wrong_shape_is_refused(shape):
    out = torch.full(shape, 7.0)
    with pytest.raises(ValueError, match=r"the result \(2, 2\)") as raised:
        tiercel.matmul(torch.ones(2, 3), torch.ones(3, 2), out=out)
    assert isinstance(raised.value, RuntimeError)
    assert out.shape == shape
    assert (out == 7).all()


def test_wrong_dtype_and_type_are_refused():
    a = torch.ones(2, 2)
    for out in (a.double(), a.numpy(), (a,)):
        with pytest.raises(TypeError, match="out ") as raised:
            tiercel.linear(a, a, out=out)
        assert isinstance(raised.value, RuntimeError)


def test_out_is_not_differentiable():
    a = torch.ones(200, 200, requires_grad=True)
    out = torch.empty(200, 200)
    for arguments in ((a, out), (out, a)):
        with pytest.raises(RuntimeError, match="out= is not differentiable"):
            tiercel.matmul(*arguments, out=torch.empty(200, 200))
    with pytest.raises(RuntimeError, match="out= is not differentiable"):
        tiercel.linear(out, out, a[0], out=torch.empty(200, 200))
    with torch.no_grad():
        assert (tiercel.matmul(a, a, out=out) == 200).all()


def test_out_under_autocast_keeps_its_dtype():
    a = torch.randn(128, 128)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours = tiercel.matmul(a, a, out=torch.empty(128, 128))
    assert ours.dtype is torch.float32
    torch.testing.assert_close(ours, a @ a, rtol=0.02, atol=0.2)


def test_a_change_by_out_is_counted(kernel_runs):
    x, out = torch.randn(4, 4, requires_grad=True), torch.ones(4, 4)
    y = (x * out).sum()
    with torch.no_grad():
        tiercel.matmul(x, x, out=out)
    assert kernel_runs
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_an_inference_tensor_is_not_written_outside_of_inference_mode():
    a = torch.ones(3, 3)
    with torch.inference_mode():
        out = torch.zeros(3, 3)
        tiercel.matmul(a, a, out=out)
    with pytest.raises(RuntimeError, match="out is an inference tensor"):
        tiercel.matmul(a, 2 * a, out=out)
    assert (out == 3).all()


@pytest.mark.parametrize("size", [3, 700])
def test_an_out_on_another_device_is_refused(size: int, kernel_runs):
    a = torch.ones(size, size)
    with pytest.raises(RuntimeError, match="out is on meta, the operands on cpu"):
        tiercel.matmul(a, a, out=torch.empty(size, size, device="meta"))
