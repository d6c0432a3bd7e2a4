"""Grouped products of tensors, without a GPU."""

import pytest
import torch

import tiercel
from tiercel import epilogues
from tiercel.errors import TiercelRuntimeError, TiercelTypeError
from tiercel.frontends.torch import grouped

SIZES = [3, 0, 7, 1]
ENDS = torch.tensor(SIZES).cumsum(0)


def operands(dtype=torch.float64, rest=2, K=5, N=6):
    a = torch.randn(sum(SIZES) + rest, K).to(dtype).requires_grad_()
    return a, torch.randn(len(SIZES), K, N).to(dtype).requires_grad_()


def exact(a, b):
    parts = a[: sum(SIZES)].split(SIZES)
    made = torch.cat([x @ w for x, w in zip(parts, b, strict=True)])
    return torch.nn.functional.pad(made, (0, 0, 0, len(a) - len(made)))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("offsets", [ENDS, ENDS.int(), torch.tensor([0, *ENDS])])
def test_values_and_rows_behind_the_groups(dtype, offsets):
    a, b = (x.detach() for x in operands(dtype))
    tolerance = {torch.bfloat16: 2e-2}.get(dtype, 1e-5)
    torch.testing.assert_close(
        tiercel.grouped_matmul(a, b, offsets), exact(a, b), rtol=tolerance, atol=tolerance
    )


def test_gradients_once_and_twice():
    a, b = operands()

    def call(a, b):
        return tiercel.grouped_matmul(a, b, ENDS)

    assert torch.autograd.gradcheck(call, (a, b))
    assert torch.autograd.gradgradcheck(call, (a, b))


def test_only_what_is_asked_for_is_differentiated():
    a, b = operands()
    (grad,) = torch.autograd.grad(tiercel.grouped_matmul(a, b.detach(), ENDS).sum(), a)
    (wanted,) = torch.autograd.grad(exact(a, b).sum(), a)
    torch.testing.assert_close(grad, wanted)


def test_out_is_filled_and_not_differentiable():
    a, b = (x.detach() for x in operands())
    out = torch.full((13, 6), float("nan"), dtype=torch.float64)
    assert tiercel.grouped_matmul(a, b, ENDS, out=out) is out
    torch.testing.assert_close(out, exact(a, b))
    with pytest.raises(TiercelRuntimeError, match="out= is not differentiable"):
        tiercel.grouped_matmul(*operands(), ENDS, out=out)


@tiercel.epilogue(bias="row", weight="column")
def expert(acc, bias, weight):
    return epilogues.swiglu(acc + bias) * weight


def test_epilogues_and_their_gradients():
    a, b = operands()
    bias = torch.randn(4, 1, 6, dtype=torch.float64, requires_grad=True)
    weight = torch.rand(13, 1, dtype=torch.float64, requires_grad=True)

    def call(a, b, bias, weight):
        return tiercel.grouped_matmul(a, b, ENDS, epilogue=expert, bias=bias, weight=weight)

    assert torch.autograd.gradcheck(call, (a, b, bias, weight))
    arrays = [x.detach().numpy() for x in (a, b, ENDS, bias, weight)]
    wanted = tiercel.grouped_matmul(*arrays[:3], epilogue=expert, bias=arrays[3], weight=arrays[4])
    torch.testing.assert_close(call(a, b, bias, weight).detach(), torch.from_numpy(wanted))


def test_a_hopper_gets_one_launch_and_other_layouts_the_loop(monkeypatch):
    calls = []

    def kernel(a, b, offsets, **more):
        calls.append((a, b, offsets, more))
        if a.shape[1] % 8:
            raise TiercelTypeError("a has strides")
        return "the kernel's"

    monkeypatch.setattr(grouped, "_is_for_hopper", lambda *x: True)
    monkeypatch.setattr(grouped.hopper, "grouped_gemm", kernel)
    a, b = (x.detach() for x in operands(torch.bfloat16, K=8))
    assert tiercel.grouped_matmul(a, b, ENDS) == "the kernel's"
    assert calls.pop() == (a, b, ENDS, {"out": None})
    tiercel.grouped_matmul(a, b, ENDS, epilogue="silu")
    assert calls.pop()[3] == {"out": None, "epilogue": epilogues.silu, "operands": {}}
    a, b = (x.detach() for x in operands(torch.bfloat16))
    torch.testing.assert_close(
        tiercel.grouped_matmul(a, b, ENDS), exact(a, b), rtol=0.02, atol=0.02
    )


def test_refusals_name_the_argument():
    a, b = (x.detach() for x in operands())
    with pytest.raises(TiercelTypeError, match="offsets is on list"):
        tiercel.grouped_matmul(a, b, [1, 2, 3, 4])
    with pytest.raises(TiercelTypeError, match=r"a is torch.float64 and b torch.float32"):
        tiercel.grouped_matmul(a, b.float(), ENDS)
