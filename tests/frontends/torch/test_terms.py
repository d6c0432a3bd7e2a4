"""alpha, beta, c and operands by name: tensors give what arrays give."""

import numpy as np
import pytest
import torch

import tiercel
from tests.test_terms import REFUSED
from tiercel import epilogues
from tiercel.errors import TiercelValueError

RNG = np.random.default_rng(3)
M, N, K = 9, 14, 6


def arrays(dtype: str, *shapes):
    return [RNG.standard_normal(shape).astype(dtype) for shape in shapes]


CALLS = {
    "scale": lambda a, b, c, bias: tiercel.matmul(a, b, alpha=-0.5),
    "c": lambda a, b, c, bias: tiercel.matmul(a, b, c=c, beta=2),
    "row": lambda a, b, c, bias: tiercel.matmul(a, b, c=bias),
    "column": lambda a, b, c, bias: tiercel.matmul(a, b, c=c[:, :1]),
    "all": lambda a, b, c, bias: tiercel.matmul(
        a, b, c=c, alpha=3, bias=bias, epilogue="silu"
    ),
    "operands": lambda a, b, c, bias: tiercel.matmul(
        a, b, epilogue=epilogues.residual_rms, residual=c, gamma=bias
    )["out"],
    "linear": lambda a, b, c, bias: tiercel.linear(
        a, b.T, bias, epilogue=epilogues.residual, residual=c
    ),
    "vector": lambda a, b, c, bias: tiercel.matmul(a[0], b, alpha=2, c=bias),
}  # fmt: skip


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_values_are_those_of_numpy(call, dtype: str):
    given = arrays(dtype, (M, K), (K, N), (M, N), (N,))
    found = call(*(torch.from_numpy(x) for x in given))
    tolerance = 1e-5 if dtype == "f4" else 1e-13
    np.testing.assert_allclose(found.numpy(), call(*given), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.int32, torch.complex64])
def test_products_without_epilogues_use_torchs_operations(dtype):
    a, b, c = (torch.randint(-5, 5, shape).to(dtype) for shape in ((M, K), (K, N), (M, N)))
    assert torch.equal(tiercel.matmul(a, b, c=c, alpha=2, beta=3), 2 * (a @ b) + 3 * c)


def test_out_may_be_c():
    a, b, c = (torch.from_numpy(x) for x in arrays("f8", (M, K), (K, N), (M, N)))
    wanted = a @ b + 0.5 * c
    assert tiercel.matmul(a, b, c, c=c, beta=0.5) is c
    torch.testing.assert_close(c, wanted)


def test_gradients():
    a, b, c = (torch.from_numpy(x).requires_grad_() for x in arrays("f8", (M, K), (K, N), (N,)))
    assert torch.autograd.gradcheck(
        lambda a, b, c: tiercel.matmul(a, b, c=c, alpha=2.0, epilogue="gelu"), (a, b, c)
    )


def test_a_compiled_product_computes_the_same():
    a, b, c, bias = (torch.from_numpy(x) for x in arrays("f4", (M, K), (K, N), (M, N), (N,)))

    def call(a, b, c, bias):
        return tiercel.matmul(a, b, c=c, alpha=2.0, bias=bias, epilogue="relu")

    compiled = torch.compile(call, backend="aot_eager")
    torch.testing.assert_close(compiled(a, b, c, bias), call(a, b, c, bias))


@pytest.mark.parametrize(("terms", "error", "message"), REFUSED)
def test_refusals_name_the_argument(terms, error, message):
    a, other = torch.ones((3, 3)), torch.ones((3, 5))
    with pytest.raises(error, match=message):
        tiercel.matmul(a, a, **terms(a, other))


@pytest.mark.parametrize("shape", [(M, N), (1, N), (N,), (M, 1), ()])
def test_a_summand_needs_one_call_of_torchs(shape, monkeypatch):
    a, b, c = (torch.from_numpy(np.asarray(x)) for x in arrays("f8", (M, K), (K, N), shape))
    calls = []

    def addmm(*args, **kwargs):
        calls.append(args)
        return real(*args, **kwargs)

    real = torch.addmm
    monkeypatch.setattr(torch, "addmm", addmm)
    found = tiercel.matmul(a, b, c=c, alpha=3, beta=-0.5)
    assert len(calls) == 1
    torch.testing.assert_close(found, 3 * (a @ b) - 0.5 * c)
    c = torch.full((M, N), float("nan"), dtype=torch.float64)
    torch.testing.assert_close(tiercel.matmul(a, b, c=c, beta=0), a @ b)


def test_what_overlaps_or_does_not_fit_is_looked_at_closer():
    a, b, c = (torch.from_numpy(x) for x in arrays("f8", (M, M), (M, M), (M, M)))
    wanted = a @ b + c
    torch.testing.assert_close(tiercel.matmul(a, b, a, c=c), wanted)
    with pytest.raises(TiercelValueError, match="has shape"):
        tiercel.matmul(b, c, torch.empty(2, M, dtype=torch.float64), c=c)
    with pytest.raises((TiercelValueError, RuntimeError)):
        tiercel.matmul(b, c, c=torch.ones(M + 1, dtype=torch.float64))
    mixed = tiercel.matmul(b, c, c=torch.ones(M, M))  # float32
    torch.testing.assert_close(mixed, b @ c + 1)
