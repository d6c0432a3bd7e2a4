"""Launches with an epilogue whose arrays lie elsewhere have the arguments of new ones. No GPU."""

import gc
from contextlib import nullcontext
from weakref import ref

import pytest
import torch

from tests.frontends.torch.cuda.test_moved import (
    K,
    Kernel,
    M,
    N,
    launched,  # noqa: F401  a fixture
    matrix,
    packed_weight,
)
from tiercel.errors import TiercelTypeError
from tiercel.lower.accumulator.combining import Combining
from tiercel.lower.epilogue import library
from tiercel.targets.hopper.epilogues import fused, fused_plan, plan, product
from tiercel.targets.hopper.epilogues.product import gemm_epilogue


@pytest.fixture
def played(launched, monkeypatch):  # noqa: F811
    """All that is asked of a device; kernels are ``launched``."""
    counters = torch.zeros(4096, dtype=torch.int32)
    kernel = Kernel("epilogue", launched)
    monkeypatch.setattr(plan, "_kernel", lambda *key: kernel)
    monkeypatch.setattr(plan, "multiprocessors", lambda device: 132)
    for module in (product, fused):
        monkeypatch.setattr(module, "arrivals", lambda device, stream, count: counters)
    for module in (product, fused_plan):
        monkeypatch.setattr(module, "check_devices", lambda named: None)
    monkeypatch.setattr(product, "_plans", {})
    monkeypatch.setattr(product, "_ready", {})
    monkeypatch.setattr(product, "run", lambda ready, a, stream: ready.run(stream))
    monkeypatch.setattr(fused, "on_device", lambda device: nullcontext())
    monkeypatch.setattr(fused, "clear_words", lambda *where: launched.append(("clear", where)))
    return launched


def operands_of(name):
    return {
        "gelu": dict,
        "residual_rms": lambda: {"residual": matrix(M, N), "gamma": matrix(1, N)[0]},
        "clamp": lambda: {"low": -0.5, "high": 1},
        "cross_entropy": lambda: {"target": torch.zeros(M, 1, dtype=torch.int64)},
    }[name]()


@pytest.fixture
def same_results(monkeypatch):
    """Let the next call fill the arrays of the one before, as the device's allocator may."""
    kept = []

    def allocate(self, like, out):
        if not kept:
            kept.append(original(self, like, out))
        return kept[-1] | ({} if out is None else {self.first: out})

    original = product.Filled.allocate
    monkeypatch.setattr(product.Filled, "allocate", allocate)
    return kept


@pytest.mark.parametrize("name", ["gelu", "residual_rms", "clamp", "cross_entropy"])
@pytest.mark.parametrize("own", [False, True])
def test_the_classical_kernel(played, same_results, name, own):
    epilogue = getattr(library, name)
    if own and name == "cross_entropy":  # which has no tile
        return
    for _ in range(3):
        a, b, operands = matrix(M, K), matrix(K, N), operands_of(name)
        out = matrix(M, N) if own else None
        same_results.clear()
        played.clear()
        gemm_epilogue(a, b, epilogue, operands, out=out, stream=7)
        (moved,) = played
        ready = dict(product._ready)
        product._ready.clear()
        played.clear()
        gemm_epilogue(a, b, epilogue, operands, out=out, stream=7)
        assert played == [moved]
        product._ready.update(ready)
    assert len(product._ready) == len(product._plans) == 1


def test_numbers_are_part_of_a_launch_and_not_of_a_plan(played):
    a, b = matrix(M, K), matrix(K, N)
    for low in (-1.0, 0.0, -1.0):
        gemm_epilogue(a, b, library.clamp, {"low": low, "high": 2}, stream=7)
    first, second, _ = (argument for *_, argument in played)
    assert first != second
    assert len(product._ready) == 2
    assert len(product._plans) == 1


def test_other_kinds_are_other_launches(played):
    a, b = matrix(M, K), matrix(K, N)
    calls = (
        (a, b, None, matrix(M, N)),
        (a.half(), b.half(), None, matrix(M, N).half()),
        (matrix(M, 2 * K)[:, :K], b, None, matrix(M, N)),
        (a, matrix(N, K).t(), None, matrix(M, N)),
        (a, b, matrix(M, N), matrix(M, N)),
        (a, b, None, matrix(N, M).t()),
        (a, b, None, matrix(M, N).float()),
    )
    for number, (left, right, out, residual) in enumerate(calls):
        for _ in range(2):
            gemm_epilogue(left, right, library.residual, {"residual": residual}, out=out, stream=7)
            assert len(product._ready) == number + 1


def test_an_operand_of_another_device_is_refused():
    a, b = matrix(M, K), matrix(K, N)
    with pytest.raises(TiercelTypeError, match="must be on one CUDA device"):
        gemm_epilogue(a, b, library.residual, {"residual": matrix(M, N)}, stream=7)


@pytest.mark.usefixtures("played")
def test_a_ready_launch_keeps_no_weight_packed():
    weight = packed_weight()
    for _ in range(2):
        fused.fused_epilogue(
            matrix(M, K), weight.static.operand, library.gelu, {}, judge=weight.static.judge,
            combining=Combining("beside"), stream=7,
        )  # fmt: skip
    kept = fused.kept_of(weight.static.operand)
    assert len(kept.ready) == len(kept.plans) == 1
    alive = [ref(x) for x in (weight, weight.static.operand, weight.static.operand.memory)]
    known = len(fused._of_packed)
    del weight
    gc.collect()
    assert len(fused._of_packed) == known - 1
    assert [x() for x in alive] == [None] * 3


@pytest.mark.usefixtures("played")
def test_a_guard_that_is_looser_is_made_once(monkeypatch):
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 7, raising=False)
    weight = packed_weight()
    for _ in range(2):
        for any_scale in (False, True):
            a = matrix(M, K)
            weight.multiply_and_end(a, None, library.gelu, {}, any_scale=any_scale)
    assert len(fused.kept_of(weight.static.operand).ready) == 2
