"""The short way to a kernel with an epilogue: when it is taken, and when not. Without a GPU."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import tiercel
from tiercel.errors import TiercelValueError
from tiercel.frontends.torch.cuda.packed import Packed
from tiercel.frontends.torch.epilogues import again as epilogue_again
from tiercel.frontends.torch.epilogues.again import remember, with_epilogue_again
from tiercel.frontends.torch.packed import PackedTensor
from tiercel.lower.epilogue import library
from tiercel.lower.epilogue.affine import affine
from tiercel.targets.hopper.launching.kernel import LaunchRefused

M, K, N = 8, 16, 24


@pytest.fixture
def ran(monkeypatch):
    """Kernels that ran: their operands."""
    found = []

    def gemm_epilogue(a, b, epilogue, operands):
        found.append(("classical", tuple(b.shape), epilogue.name, dict(operands)))
        return {"out": torch.zeros(M, N)}

    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda x: True))
    monkeypatch.setattr(epilogue_again, "_kernel", lambda: gemm_epilogue)
    monkeypatch.setattr(epilogue_again, "_seen", {})
    return found


def operands(dtype=torch.bfloat16):
    return torch.randn(M, K).to(dtype), torch.randn(N, K).to(dtype)


def again(a, w, epilogue=library.gelu, bias=None, **given):
    return with_epilogue_again(a, w, bias, epilogue, given, columns_of=-2)


def test_what_a_kernel_has_run_is_repeated(ran):
    a, w = operands()
    assert again(a, w) is None
    remember("classical", library.gelu, a, w.t(), None)
    assert again(*operands()).shape == (M, N)
    assert ran == [("classical", (K, N), "gelu", {})]
    # As a matrix (K, N) it lies otherwise.
    assert with_epilogue_again(a, w.t().contiguous(), None, library.gelu, {}, columns_of=-1) is None
    assert with_epilogue_again(a, w.t(), None, library.gelu, {}, columns_of=-1) is not None


def test_others_are_looked_at(ran, monkeypatch):
    a, w = operands()
    remember("classical", library.gelu, a, w.t(), None)
    for x, y in (
        operands(torch.float16), (a[:4], w), (torch.randn(K, M).bfloat16().t(), w),
        (np.ones((M, K)), w), (a, torch.nn.Parameter(w)), (a, w[None]),
    ):  # fmt: skip
        assert again(x, y) is None
    assert again(a, w, library.silu) is None
    assert again(a, w, library.gelu.given()) is None
    assert again(a, w, scale=np.float32(2)) is None
    with monkeypatch.context() as patch:
        patch.setattr(torch, "is_autocast_enabled", lambda device: device == "cuda")
        assert again(a, w) is None
    with torch.utils._python_dispatch.TorchDispatchMode():
        assert again(a, w) is None
    assert torch.func.vmap(lambda x: again(x, w) or x[0])(a[None]).shape == (1, K)
    assert ran == []
    with torch.no_grad():
        assert again(a, torch.nn.Parameter(w)) is not None


def test_a_bias_comes_before_the_epilogue_or_is_its_operand(ran):
    a, w = operands()
    bias = torch.randn(N).bfloat16()
    remember("classical", library.bias, a, w.t(), None)
    again(a, w, library.bias, bias)
    remember("classical", affine(library.gelu.key, ("bias",)), a, w.t(), None)
    again(a, w, library.gelu, bias)
    assert [name for _, _, name, _ in ran] == ["bias", "affine_gelu"]
    assert all(given["bias"] is bias for *_, given in ran)


@pytest.mark.parametrize("error", [TiercelValueError, LaunchRefused])
def test_what_does_not_fit_is_left_to_the_long_way(monkeypatch, ran, error):
    a, w = operands()
    remember("classical", library.gelu, a, w.t(), None)

    def refuse(*_):
        raise error

    monkeypatch.setattr(epilogue_again, "_kernel", lambda: refuse)
    assert again(a, w) is None


def test_a_packed_operand_is_repeated_as_it_ran(ran):
    a, w = operands()
    resting = [False]

    def multiply_and_end(a, out, epilogue, given):
        ran.append(("scheme", out, epilogue.name, given))
        return {"out": a}

    weight = SimpleNamespace(
        refusals=SimpleNamespace(resting=lambda: resting[0]), multiply_and_end=multiply_and_end
    )
    b = w.t()
    packed = PackedTensor(b, Packed("winograd", weight, 0, "fused"), b._version)
    assert again(a, packed) is None
    remember("scheme", library.gelu, a, b, packed)
    assert again(a, packed) is a
    resting[0] = True
    assert again(a, packed) is None
    remember("classical", library.silu, a, b, packed)
    assert again(a, packed, library.silu) is not None
    assert again(a, w) is None, "what a packed operand runs is its own"
    assert [how for how, *_ in ran] == ["scheme", "classical"]
    w.zero_()
    with pytest.raises(TiercelValueError, match="changed in place"):
        again(a, packed)


def test_calls_come_here_first(ran):
    a, w = operands()
    remember("classical", library.gelu, a, w.t(), None)
    assert torch.equal(tiercel.linear(a, w, epilogue=library.gelu), torch.zeros(M, N))
    assert torch.equal(tiercel.matmul(a, w.t(), epilogue=library.gelu), torch.zeros(M, N))
    assert len(ran) == 2
