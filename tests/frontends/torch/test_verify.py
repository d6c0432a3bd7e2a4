"""``verify=True`` for tensors: the probe on its own, on a CPU's engine, and as a GPU is served."""

import logging
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

import tiercel
from tests.planner.test_accuracy import HERE, KINDS
from tiercel.frontends.torch import cpu, verify
from tiercel.frontends.torch.engine import Request
from tiercel.frontends.torch.probe import exceeded
from tiercel.frontends.torch.routing import shortcut
from tiercel.options import checked_options
from tiercel.planner.choose import make_plan
from tiercel.planner.gpu import make_plan as make_gpu_plan
from tiercel.planner.gpu import required
from tiercel.planner.plan import Plan
from tiercel.planner.problem import Problem
from tiercel.runtime import execute
from tiercel.targets.gpu import freivalds, redo

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.bfloat16, torch.float16]


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    wide = dtype if dtype.is_complex else torch.promote_types(dtype, torch.float32)
    return torch.randn(shape, dtype=wide).to(dtype)


# --- the probe ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [(300, 200, 250), (64, 700, 40), (900, 40, 30)])
def test_rounding_errors_pass(dtype: torch.dtype, size: tuple[int, int, int]):
    M, N, K = size
    a, b = normal(M, K, dtype=dtype), normal(K, N, dtype=dtype)
    assert not any(exceeded(a, b, a @ b, None, 1.0) for _ in range(20))


@pytest.mark.parametrize("kind", KINDS)
def test_rounding_errors_of_unkind_data_pass(kind):
    import numpy as np

    a, b = (torch.tensor(x.astype("f4")) for x in kind(np.random.default_rng(0)))
    assert not any(exceeded(a, b, a @ b, None, 1.0) for _ in range(10))


def test_results_that_nearly_cancel_pass():
    a, b = normal(400, 300), normal(300, 200)
    wide_a, wide_b = torch.cat([a, a], 1), torch.cat([b, (1e-4 - 1) * b])
    assert not any(exceeded(wide_a, wide_b, wide_a @ wide_b, None, 1.0) for _ in range(20))


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-3), (torch.float16, 0.1)])
def test_a_wrong_block_is_always_found(dtype: torch.dtype, error: float):
    a, b = normal(1024, 1024, dtype=dtype), normal(1024, 1024, dtype=dtype)
    sound, found = a @ b, 0
    for _ in range(100):
        c = sound.clone()
        i, j = torch.randint(0, 1024 - 32, (2,)).tolist()
        c[i : i + 32, j : j + 32] *= 1 + error
        found += exceeded(a, b, c, None, 8.0).item()
    assert found == 100


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), 1e30])
def test_one_wrong_entry_is_found(wrong: float):
    a, b = normal(3, 200, 300), normal(3, 300, 100)
    c = a @ b
    assert not exceeded(a, b, c, None, 64.0)
    c[1, 17, 3] = wrong
    assert exceeded(a, b, c, None, 64.0)


def test_rows_that_are_not_finite_are_not_judged():
    a, b = normal(200, 300), normal(300, 100)
    a[5, 7] = float("nan")
    c = a @ b
    assert not exceeded(a, b, c, None, 1.0)
    c[6] *= 1.01
    assert exceeded(a, b, c, None, 1.0)


def test_zeros_pass_and_a_bias_belongs_to_the_product():
    zero = torch.zeros(100, 100)
    assert not exceeded(zero, zero, zero, None, 1.0)
    a, b, bias = normal(200, 300), normal(300, 100), 100 * normal(100)
    assert not exceeded(a, b, a @ b + bias, bias, 1.0)
    assert exceeded(a, b, a @ b, bias, 1.0)


# --- on a CPU -------------------------------------------------------------------------------------


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[set[str], list[str]]]:
    """Algorithms whose results are corrupted, and those that ran, with plans that like levels."""
    corrupted: set[str] = set()
    ran: list[str] = []

    def run(plan: Plan, a, b, out, bias) -> bool:
        done = execute(plan, a, b, out, bias)
        ran.append(plan.chosen.algorithm)
        if plan.chosen.algorithm in corrupted:
            out[40:80, 10:60] *= 1.001
        return done

    monkeypatch.setattr(cpu, "execute", run)
    monkeypatch.setattr(cpu, "plan_for", lambda problem: make_plan(problem, HERE))
    monkeypatch.setattr(cpu, "_plan", cpu._plan.__wrapped__)
    shortcut.forget()
    verify.forget()
    yield corrupted, ran
    verify.forget()
    shortcut.forget()


def levels() -> list[str]:
    """What is tried one after the other at 600³: how many levels are first is the processor's."""
    first = make_plan(Problem(600, 600, 600), HERE).chosen.algorithm
    names = ["strassen3", "strassen2", "strassen", "classical"]
    return names[names.index(first) :]


def test_levels_are_given_up_one_by_one_and_remembered(broken: tuple[set[str], list[str]]):
    corrupted, ran = broken
    corrupted |= {"strassen3", "strassen2"}
    a, b = normal(600, 600), normal(600, 600)
    torch.testing.assert_close(tiercel.matmul(a, b, verify=True), a @ b, atol=2e-3, rtol=0)
    assert ran == levels()[:-1]
    tiercel.matmul(a, b, verify=True)
    assert ran[-1:] == ["strassen"]
    assert len(ran) == len(levels())
    tiercel.matmul(a, b)
    assert ran[-1] == levels()[0]


def test_torch_is_the_last_resort(broken: tuple[set[str], list[str]]):
    broken[0].update(("strassen3", "strassen2", "strassen", "classical"))
    a, b, bias = normal(600, 600), normal(600, 600), normal(600)
    c = tiercel.matmul(a, b, bias=bias, verify=True)
    torch.testing.assert_close(c, a @ b + bias)
    assert broken[1] == levels()


def test_a_named_scheme_raises(broken: tuple[set[str], list[str]]):
    broken[0].add("strassen")
    with pytest.raises(tiercel.TiercelRuntimeError, match="failed its verification"):
        tiercel.matmul(normal(600, 600), normal(600, 600), scheme="strassen", verify=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_layers_stacks_and_epilogues_are_probed(
    broken: tuple[set[str], list[str]], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(cpu, "torch_is_fast_in", lambda dtype: False)
    broken[0].update(("strassen", "strassen2", "strassen3"))
    x, w, bias = (normal(*size, dtype=dtype) for size in ((2, 600, 600), (600, 600), (600,)))
    c = tiercel.linear(x, w, bias, epilogue="relu", verify=True)
    assert broken[1], "nothing was planned"
    exact = (x.double() @ w.double().t() + bias.double()).relu()
    torch.testing.assert_close(c.double(), exact, atol=2e-3, rtol=2e-3)


# --- as a GPU is served ---------------------------------------------------------------------------


class Gpu:
    """An engine of which some algorithms are wrong by a thousandth."""

    def __init__(self) -> None:
        self.wrong: set[str] = set()
        self.ran: list[str] = []

    def run(self, plan: Plan, request: Request, out: torch.Tensor) -> None:
        self.ran.append(plan.chosen.algorithm)
        torch.matmul(request.a, request.b, out=out)
        if plan.chosen.algorithm in self.wrong:
            out[40:80, 10:60] *= 1.001


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    def redone(wrong, a, b, out, bias):
        out.copy_(torch.where(wrong, a @ b if bias is None else a @ b + bias, out))

    # As for operands that PyTorch's kernels probe; the own ones are tested where they run.
    monkeypatch.setattr(freivalds, "fits", lambda *operands: False)
    monkeypatch.setattr(redo, "redo_where", redone)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    verify.forget()
    yield Gpu()
    verify.forget()


def planned(scheme: str | None = None) -> Plan:
    problem = Problem(16384, 16384, 16384, scheme=scheme)
    return make_gpu_plan(problem, required("NVIDIA H200"))


def test_what_failed_is_replaced_at_once_and_avoided_later(
    gpu: Gpu, caplog: pytest.LogCaptureFixture
):
    plan = planned()
    one = plan.chosen.algorithm
    two = plan.one_level_down().chosen.algorithm
    three = plan.choosing(two).one_level_down().chosen.algorithm
    gpu.wrong |= {one, two}
    a, b = normal(256, 300), normal(300, 200)
    request = Request(a, b, None, checked_options(verify=True))
    with caplog.at_level(logging.WARNING, "tiercel"):
        for _ in range(4):
            out = torch.empty(256, 200)
            verify._on_gpu(gpu, request, plan, out)  # type: ignore[arg-type]
            torch.testing.assert_close(out, a @ b)
    assert len({one, two, three, "vendor"}) == 4
    assert gpu.ran == [one, two, three, three]
    first, second = (record.getMessage() for record in caplog.records)
    assert f"{one} exceeds accuracy='standard'" in first
    assert f"now run {two} " in first
    assert f"now run {three} " in second


def test_a_scheme_that_was_named_is_replaced_and_stays(gpu: Gpu, caplog: pytest.LogCaptureFixture):
    gpu.wrong.add("strassen2")
    a, b = normal(256, 300), normal(300, 200)
    request = Request(a, b, None, checked_options(verify=True, scheme="strassen2"))
    with caplog.at_level(logging.WARNING, "tiercel"):
        for _ in range(2):
            out = torch.empty(256, 200)
            verify._on_gpu(gpu, request, planned("strassen2"), out)  # type: ignore[arg-type]
            torch.testing.assert_close(out, a @ b)
    assert gpu.ran == ["strassen2", "strassen2"]
    assert "strassen2 exceeds" in caplog.text


def test_a_capture_leaves_no_trace_on_the_host(gpu: Gpu, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    gpu.wrong.add("strassen3")
    a, b = normal(256, 300), normal(300, 200)
    out, plan = torch.empty(256, 200), replace(planned())
    verify._on_gpu(gpu, Request(a, b, None, checked_options(verify=True)), plan, out)  # type: ignore[arg-type]
    torch.testing.assert_close(out, a @ b)
    assert not verify._kinds


def test_what_no_scheme_would_multiply_is_torchs(gpu: Gpu):
    plan = make_gpu_plan(Problem(4096, 4096, 4096, "bfloat16"), required("NVIDIA H200"))
    assert plan.chosen.algorithm == "classical"
    a, b = normal(256, 300), normal(300, 200)
    out = torch.empty(256, 200)
    verify._on_gpu(gpu, Request(a, b, None, checked_options(verify=True)), plan, out)  # type: ignore[arg-type]
    torch.testing.assert_close(out, a @ b)
    assert gpu.ran == []
    assert not verify._kinds
