"""Products of tensors equal torch's, whatever computes them."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import tiercel
from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.frontends.torch.tensors import fold

DTYPES = (
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.complex128
)  # fmt: skip


def integers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Small integers: every order of summation gives the same bits."""
    x = torch.randint(-2, 3, shape)
    return (x + 1j * torch.randint(-2, 3, shape) if dtype.is_complex else x).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_of_the_kernels(dtype, kernel_runs):
    a, b = integers(33, 20, dtype=dtype), integers(20, 17, dtype=dtype)
    assert torch.equal(tiercel.matmul(a, b), a @ b)
    assert kernel_runs == [(33, 17, 20)]


@pytest.mark.parametrize(
    ("a", "b", "products"),
    [
        ((8, 5), (5, 7), [(8, 7, 5)]),
        ((2, 3, 8, 5), (5, 7), [(48, 7, 5)]),
        ((8, 5), (3, 5, 7), [(8, 21, 5)]),
        ((3, 8, 5), (3, 5, 7), [(8, 7, 5)] * 3),
        ((4, 3, 8, 5), (3, 5, 7), [(32, 7, 5)] * 3),
        ((4, 1, 8, 5), (1, 3, 5, 7), [(32, 21, 5)]),
        ((2, 1, 3, 8, 5), (2, 4, 1, 5, 7), [(24, 28, 5)] * 2),
    ],
)
def test_repeated_batch_axes_become_rows_or_columns(a, b, products, kernel_runs):
    x, y = integers(*a), integers(*b)
    result = tiercel.matmul(x, y)
    assert torch.equal(result, x @ y)
    assert result.is_contiguous()
    assert kernel_runs == products


def test_any_strides(kernel_runs):
    x = integers(64, 64)
    for view in (
        x.t(), x[::2], x[:, ::3], x[5:, 3:], integers(1, 64).expand(9, 64),
        torch.as_strided(x, (30, 64), (1, 20)), integers(64, 1).t(), x.flip(0),
    ):  # fmt: skip
        y = integers(view.shape[1], 12)
        assert torch.equal(tiercel.matmul(view, y), view @ y)
        assert torch.equal(tiercel.linear(view, y.t()), view @ y)
    assert len(kernel_runs) == 16


def test_lazily_conjugated_and_negated_views(kernel_runs):
    z = integers(9, 9, dtype=torch.complex128)
    for x in (z.conj(), z.mH, z.conj().imag):
        assert x.is_conj() or x.is_neg()
        assert torch.equal(tiercel.matmul(x, x), x @ x)
        assert torch.equal(tiercel.linear(x, x), x @ x.mT)
    assert len(kernel_runs) == 6
    result, bias = tiercel.linear(z.real, z.real, z.conj().imag[0]), z.conj().imag[0]
    assert torch.equal(result, F.linear(z.real, z.real, bias))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("epilogue", [None, "relu", "gelu", "gelu_tanh", "silu"])
def test_a_fused_epilogue_is_as_accurate_as_torchs_chain(dtype, epilogue, kernel_runs):
    g = torch.Generator().manual_seed(0)
    x, w, bias = (torch.randn(s, generator=g).to(dtype) for s in ((24, 40), (30, 40), (30,)))
    fused = tiercel.linear(x, w, bias, epilogue=epilogue)
    assert kernel_runs == [(24, 30, 40)]
    assert torch.equal(tiercel.matmul(x, w.t(), bias=bias, epilogue=epilogue), fused)
    chain = tiercel.linear(x, w, bias, epilogue=epilogue, scheme="vendor")
    wide = (tensor.double() for tensor in (x, w, bias))
    truth = tiercel.linear(*wide, epilogue=epilogue, scheme="vendor")
    assert len(kernel_runs) == 2
    assert (fused - truth).norm() <= 1.2 * (chain - truth).norm()


def test_torch_repeats_no_large_operand(monkeypatch, kernel_runs):
    monkeypatch.undo()
    a = torch.randn(64, 32, 1, 6, dtype=torch.float64, requires_grad=True)
    b = torch.randn(32, 6, 5, dtype=torch.float64, requires_grad=True)
    expected = torch.autograd.grad((a @ b).square().sum(), [a, b])
    monkeypatch.setattr(fold, "MOST_REPEATED", 0)
    result = tiercel.matmul(a, b)
    torch.testing.assert_close(result, a @ b)
    torch.testing.assert_close(torch.autograd.grad(result.square().sum(), [a, b]), expected)
    profile = torch.autograd.profiler.profile(profile_memory=True)
    with profile:
        tiercel.matmul(a, b)
    assert (
        max(event.cpu_memory_usage for event in profile.function_events or ()) < 4 * 8 * a.numel()
    )


def test_scheme_runs_as_named_or_not_at_all():
    a = integers(64, 64)
    assert torch.equal(tiercel.matmul(a, a, scheme="strassen"), a @ a)
    with pytest.raises(TiercelTypeError, match=r"scheme='strassen' does not work for a product in"):
        tiercel.matmul(a.int(), a.int(), scheme="strassen")
    with pytest.raises(tiercel.TiercelRuntimeError, match="not safe for these operands"):
        tiercel.matmul(a / 0, a, scheme="strassen")


def test_unsafe_data_take_the_classical_way():
    a = torch.randn(1100, 1100)
    a[3, 5] = torch.inf
    assert torch.equal(tiercel.matmul(a, a).isfinite(), (a @ a).isfinite())


def test_small_products_and_other_types_are_torchs(kernel_runs, monkeypatch):
    monkeypatch.undo()
    x = integers(16, 16)
    for a in (x, x.int(), x.to_sparse(), x.to("meta")):
        torch.testing.assert_close(tiercel.matmul(a, a), a @ a)
    for shapes in (
        ((3,), (3,)),
        ((2, 3), (3,)),
        ((3,), (3, 4)),
        ((2, 0), (0, 3)),
        ((0, 2), (2, 3)),
    ):
        a, b = (torch.ones(shape) for shape in shapes)
        assert torch.equal(tiercel.matmul(a, b), a @ b)
    assert tiercel.linear(torch.ones(3), torch.ones(3)).shape == ()
    nested = torch.nested.nested_tensor([x, x + 1])
    for found, matrix in zip(tiercel.matmul(nested, nested).unbind(), (x, x + 1), strict=True):
        assert torch.equal(found, matrix @ matrix)
    assert kernel_runs == []


@pytest.mark.parametrize("size", [4, 900])
@pytest.mark.parametrize("bias", [2.0, [1.0] * 4, np.ones(4, np.float32)])
def test_a_bias_that_is_no_tensor_is_named(size, bias):
    a = torch.ones(size, size)
    with pytest.raises(TiercelTypeError, match=r"bias is a \w+; allowed: a tensor"):
        tiercel.matmul(a, a, bias=bias)


def test_vectors_take_a_bias_like_arrays_do():
    assert tiercel.matmul(torch.ones(2, 3), torch.ones(3), bias=torch.ones(1)).tolist() == [4, 4]
    with pytest.raises(TiercelValueError, match=r"bias has shape \(2,\), allowed: \(4,\)"):
        tiercel.matmul(torch.ones(2, 3), torch.ones(3, 4), bias=torch.ones(2))


def test_what_does_not_fit_raises_torchs_own_error(kernel_runs):
    x = torch.ones(200, 200)
    for a, b in (
        (x, x[:9]),
        (x, x.double()),
        (x[None, :9].expand(2, 9, 200), x.expand(3, 200, 200)),
    ):
        with pytest.raises(RuntimeError) as by_torch:
            torch.matmul(a, b)
        with pytest.raises(RuntimeError) as ours:
            tiercel.matmul(a, b)
        assert str(ours.value) == str(by_torch.value)
    with pytest.raises(RuntimeError):
        tiercel.linear(x, x, torch.ones(3))
    assert kernel_runs == []


def test_subclasses_keep_their_say():
    class Logged(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    seen: list = []
    x = torch.ones(300, 300)
    assert type(tiercel.matmul(x.as_subclass(Logged), x)) is Logged
    assert torch.matmul in seen


@pytest.mark.parametrize("other", [None, [1.0, 2.0], 3])
def test_what_is_no_tensor_gets_torchs_error(other):
    for product in (tiercel.matmul, tiercel.linear):
        with pytest.raises(TypeError, match="must be Tensor"):
            product(torch.ones(2, 2), other)


def test_a_plan_multiplies_tensors():
    a, b = integers(70, 80), integers(80, 90)
    for name in ("vendor", "classical", "strassen"):
        plan = tiercel.plan(70, 90, 80, scheme=name, threads=1)
        assert torch.equal(plan(a, b), a @ b)
    with pytest.raises(TiercelTypeError, match="for float32, a has"):
        plan(a.double(), b.double())
