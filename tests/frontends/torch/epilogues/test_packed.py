"""Epilogues of products with packed operands, planned and prepared without a GPU."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from tests.frontends.torch.cuda.test_moved import (
    K,
    M,
    N,
    launched,  # noqa: F401  a fixture
    matrix,
    packed_weight,
)
from tiercel.errors import TiercelValueError
from tiercel.frontends.torch.cuda import engine, fused
from tiercel.frontends.torch.cuda.packed import Packed
from tiercel.frontends.torch.epilogues import packed as packed_epilogue
from tiercel.frontends.torch.packed import PackedTensor
from tiercel.lower.accumulator.combining import Combining
from tiercel.lower.epilogue import library
from tiercel.options import DEFAULT
from tiercel.planner.gpu import GpuPlan
from tiercel.targets.hopper.epilogues import fused as fused_epilogue
from tiercel.targets.hopper.epilogues import fused_plan

GIVEN = SimpleNamespace(epilogue=library.residual_rms, operands={})


@pytest.fixture
def device(monkeypatch, launched):  # noqa: F811
    """Everything of a device that is asked for, but for its kernels, which are ``launched``."""
    counters = torch.zeros(4096, dtype=torch.int32)
    monkeypatch.setattr(fused_epilogue, "arrivals", lambda device, stream, count: counters)
    monkeypatch.setattr(fused_plan, "check_devices", lambda named: None)
    monkeypatch.setattr(fused_epilogue, "clear_words", lambda *where: None)
    monkeypatch.setattr(fused_epilogue, "on_device", lambda device: nullcontext())
    return launched


def multiplied(weight, a, residual, gamma):
    operands = {"residual": residual, "gamma": gamma}
    return fused_epilogue.fused_epilogue(
        a, weight.static.operand, library.residual_rms, operands,
        judge=weight.static.judge, combining=Combining("beside"), stream=7,
    )  # fmt: skip


def test_a_ready_launch_moves_to_other_arrays(device, monkeypatch):
    weight = packed_weight()
    kept = []
    for _ in range(3):
        arrays = matrix(M, K), matrix(M, N), matrix(1, N)[0]
        got = multiplied(weight, *arrays)
        assert {name: tuple(x.shape) for name, x in got.items()} == {
            "out": (M, N), "hidden": (M, N), "sum_of_squares": (M, 1),
        }  # fmt: skip
        kept.append((arrays, got))
    assert len(fused_epilogue.kept_of(weight.static.operand).ready) == 1
    # One kernel each time, whose argument differs from the one before in addresses alone.
    assert len(device) == 3
    assert len({(name, blocks, len(argument)) for name, blocks, _, argument in device}) == 1
    assert len({argument for *_, argument in device}) == 3


def planned(monkeypatch, kind: str, fringe: int = 0, faster: bool = True):
    """Let the engine plan products for one kind of kernel, ``faster`` with an epilogue or not."""
    chosen = SimpleNamespace(variant=SimpleNamespace(kind=kind), fringe=fringe)
    plan = object.__new__(GpuPlan)
    object.__setattr__(plan, "chosen", chosen)
    monkeypatch.setattr(engine, "plan", lambda request: plan)
    monkeypatch.setattr(packed_epilogue, "machine_for", lambda device, dtype: None)
    monkeypatch.setattr(packed_epilogue, "gains", lambda plan, machine, reductions: faster)


@pytest.mark.parametrize(
    ("kind", "fringe", "faster"),
    [("vendor", 0, True), ("portable", 0, True), ("fused", 3, True), ("fused", 0, False)],
)
def test_what_does_not_gain_by_the_scheme_is_left(monkeypatch, kind, fringe, faster):
    planned(monkeypatch, kind, fringe, faster)
    b = matrix(N, K).t()
    packed = PackedTensor(b, Packed("winograd", packed_weight(), 0, "fused"), b._version)
    assert packed_epilogue.by_scheme(GIVEN, matrix(M, K), packed, DEFAULT) is None


def test_a_weight_that_changed_is_refused():
    b = matrix(N, K).t()
    packed = PackedTensor(b, Packed("winograd", packed_weight(), 0, "fused"), b._version)
    b.mul_(2)
    with pytest.raises(TiercelValueError, match="changed in place"):
        packed_epilogue.by_scheme(GIVEN, matrix(M, K), packed, DEFAULT)


def test_the_schemes_kernel_gets_the_operands_and_tells_of_refusals(monkeypatch):
    planned(monkeypatch, "fused")
    weight, asked, told = packed_weight(), [], []
    b = matrix(N, K).t()
    packed = PackedTensor(b, Packed("winograd", weight, 0, "fused"), b._version)

    def kernel(a, operand, epilogue, operands, *, judge, out, told):
        asked.append((operand, epilogue, operands, judge, out))
        told(lambda: torch.ones(8, dtype=torch.int32))
        return {"out": a}

    monkeypatch.setattr(fused, "_kernel_with_epilogue", lambda: kernel)
    monkeypatch.setattr(weight.refusals, "tell", lambda judge, flag: told.append(judge(flag)))
    monkeypatch.setattr(packed_epilogue, "capturing", lambda: False)
    monkeypatch.setattr(weight.refusals, "due", lambda: True)
    a = matrix(M, K)
    assert packed_epilogue.by_scheme(GIVEN, a, packed, DEFAULT) == {"out": a}
    assert asked == [(weight.static.operand, GIVEN.epilogue, {}, weight.static.judge, None)]
    assert told == [True]
