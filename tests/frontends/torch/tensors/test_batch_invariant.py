"""``batch_invariant=True``: a row's bits do not depend on the other rows."""

import pytest
import torch
from torch import nn

import tiercel
from tiercel.errors import TiercelTypeError


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("N", "K"), [(33, 20), (130, 700), (17, 1500)])
def test_rows_alone_and_together_have_the_same_bits(N, K, dtype):
    g = torch.Generator().manual_seed(0)
    x, w = (torch.randn(s, K, generator=g).to(dtype) for s in (97, N))
    bias = torch.randn(N, generator=g).to(dtype)
    together = tiercel.linear(x, w, bias, batch_invariant=True)
    torch.testing.assert_close(together, nn.functional.linear(x, w, bias), rtol=0.02, atol=0.02)
    for rows in (slice(0, 1), slice(5, 6), slice(0, 7), slice(40, 97), slice(3, 90, 7)):
        alone = tiercel.linear(x[rows], w, bias, batch_invariant=True)
        assert torch.equal(alone, together[rows])
    assert torch.equal(tiercel.matmul(x, w.t(), bias=bias, batch_invariant=True), together)


def test_neighbours_that_ordinary_plans_would_refuse():
    x, w = torch.randn(300, 256), torch.randn(512, 256)
    alone = tiercel.linear(x[:10], w, batch_invariant=True)
    x[10:] *= 1e30
    x[11, 3] = torch.inf
    assert torch.equal(tiercel.linear(x, w, batch_invariant=True)[:10], alone)


def test_many_rows_and_axes():
    x, w = torch.randn(3, 700, 64), torch.randn(96, 64)
    together = tiercel.linear(x, w, batch_invariant=True)
    assert torch.equal(together[1, 5:6], tiercel.linear(x[1, 5:6], w, batch_invariant=True))


def test_gradients_of_the_input_too():
    x, w = torch.randn(50, 40, requires_grad=True), torch.randn(30, 40)
    (all_rows,) = torch.autograd.grad(tiercel.linear(x, w, batch_invariant=True).sum(), x)
    (one_row,) = torch.autograd.grad(tiercel.linear(x[:1], w, batch_invariant=True).sum(), x)
    assert torch.equal(all_rows[0], one_row[0])


def test_a_patched_model():
    model = nn.Sequential(nn.Linear(40, 70), nn.GELU(), nn.Linear(70, 5)).requires_grad_(False)
    report = tiercel.patch(model, batch_invariant=True, pack_weights=True)
    assert [layer.decision for layer in report.layers] == [
        "patched, not packed: batch_invariant"
    ] * 2
    assert {run.algorithm for layer in report.layers for run in layer.runs} == {"classical"}
    x = torch.randn(40, 40)
    assert torch.equal(model(x)[7:9], model(x[7:9]))
    compiled = torch.compile(model, backend="aot_eager", dynamic=True)
    assert torch.equal(compiled(x)[7:9], compiled(x[7:9]))


def test_what_has_no_such_product_is_refused():
    x = torch.randn(4, 4)
    for a in (x.to(torch.complex64), x.to_sparse(), x.to("meta")):
        with pytest.raises(TiercelTypeError, match="batch_invariant=True"):
            tiercel.matmul(a, a, batch_invariant=True)
    with pytest.raises(TiercelTypeError, match="batch_invariant"):
        tiercel.matmul(x, x, scheme="strassen", batch_invariant=True)
    with pytest.raises(TiercelTypeError, match="tensors"):
        tiercel.matmul(x.numpy(), x.numpy(), batch_invariant=True)
    with pytest.raises(TiercelTypeError, match="True or False"):
        tiercel.matmul(x, x, batch_invariant=1)  # type: ignore[arg-type]


def test_what_has_no_rounding_is_torchs():
    x = torch.ones(4, 4, dtype=torch.int32)
    assert torch.equal(tiercel.matmul(x, x, batch_invariant=True), x @ x)
    assert tiercel.linear(torch.ones(0, 4), torch.ones(3, 4), batch_invariant=True).shape == (0, 3)
