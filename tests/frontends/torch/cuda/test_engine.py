"""The CUDA engine's decisions, without a GPU: a known profile, and recorders instead of kernels."""

import math
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from tests.planner.gpu.h200 import H200
from tiercel import counters
from tiercel.errors import TiercelRuntimeError, TiercelTypeError
from tiercel.frontends.torch.cuda import ending, engine, fused, refusals, run, variants
from tiercel.frontends.torch.cuda import machine as cuda_machine
from tiercel.frontends.torch.cuda import packed as cuda_packed
from tiercel.frontends.torch.cuda.packed import Packed
from tiercel.frontends.torch.engine import Request
from tiercel.frontends.torch.epilogues.named import with_epilogue
from tiercel.options import DEFAULT, checked_options
from tiercel.targets.hopper.launching import driver
from tiercel.targets.hopper.launching.kernel import LaunchRefused


class Device:
    """What the engine asks a device and its driver, answered as on an H200."""

    capturing = False
    hopper = ""

    def __init__(self) -> None:
        self.ran: list[str] = []


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    """Kernels write a marker of their kind, 1, 2 or 3, instead of a product."""
    fake = Device()
    monkeypatch.setattr(torch.cuda, "current_device", lambda: -1)  # that of CPU tensors
    monkeypatch.setattr(engine, "machine_for", lambda device, dtype: H200)
    monkeypatch.setattr(engine, "why_not_hopper", lambda device: fake.hopper)
    monkeypatch.setattr(engine, "why_no_sums", lambda: "")
    for module in (engine, run, refusals):
        monkeypatch.setattr(module, "capturing", lambda: fake.capturing)
    monkeypatch.setattr(run, "_ran", {})

    def recorder(kind: str, mark: int):
        def kernel(plan, request, out):
            fake.ran.append(kind)
            out.fill_(mark)

        return kernel

    kinds = {kind: recorder(kind, i) for i, kind in enumerate(("portable", "plain", "fused"), 1)}
    monkeypatch.setattr(run, "_RUN", kinds)
    engine._plan.cache_clear()
    yield fake
    engine._plan.cache_clear()


def meta(M: int, K: int, N: int, dtype=torch.float32, packed=None, **options) -> Request:
    """A request whose operands have sizes and strides only; b is a transposed weight."""
    a, w = (torch.empty(size, device="meta", dtype=dtype) for size in ((M, K), (N, K)))
    return Request(a, w.t(), None, checked_options(**options), packed)


def small(M=64, K=256, N=64, dtype=torch.float32, packed=None, bias=None, **options) -> Request:
    """A request with values, too small to be worth a plan."""
    a, w = torch.randn(M, K).to(dtype), torch.randn(N, K).to(dtype)
    return Request(a, w.t(), bias, checked_options(**options), packed)


def chosen(request: Request) -> str:
    plan = engine.plan(request)
    return "vendor" if plan is None else plan.chosen.algorithm


WINOGRAD = Packed("winograd", SimpleNamespace(allows=lambda: True), 0, "fused")


def test_what_is_clearly_won_runs_here(device):
    assert chosen(meta(8192, 8192, 8192)) == "strassen3"
    assert chosen(meta(8192, 8192, 28672, torch.bfloat16, WINOGRAD)) == "winograd"
    assert chosen(meta(8192, 4096, 14336, torch.bfloat16, epilogue="gelu")) == "classical"


def test_everything_else_is_torchs(device):
    assert chosen(meta(512, 512, 512)) == "vendor"
    assert chosen(meta(1024, 4096, 4096, torch.bfloat16)) == "vendor"
    assert chosen(meta(16, 8192, 28672, torch.bfloat16, WINOGRAD)) == "vendor"
    assert chosen(meta(8192, 8192, 8192, accuracy="classical")) == "vendor"


def test_a_plan_is_found_again(device):
    request = meta(8192, 8192, 8192)
    assert engine.plan(request) is engine.plan(meta(8192, 8192, 8192))


def test_layouts_say_what_tma_can_read():
    assert engine._layout((64, 1), (8, 64), 8) == "row"
    assert engine._layout((1, 64), (8, 64), 8) == "col"
    assert engine._layout((65, 1), (8, 64), 8) == "strided"
    assert engine._layout((65, 1), (8, 64), 1) == "row"  # Triton reads any stride
    assert engine._layout((128, 2), (8, 64), 1) == "strided"
    assert engine._layout((7, 1), (1, 64), 8) == "row"


def test_tf32_has_plans_of_its_own(device, monkeypatch):
    monkeypatch.setattr(engine, "tf32_allowed", lambda: True)
    request = meta(8192, 8192, 8192)
    assert engine.plan(meta(8192, 8192, 8192, scheme="strassen")).problem.dtype == "float32"
    g, x = (torch.empty(8192, n, device="meta") for n in (4096, 14336))
    grad = engine.plan(Request(g.t(), x, None, DEFAULT))
    assert (grad.chosen.algorithm, grad.problem.dtype) == ("classical", "tfloat32")
    assert grad.chosen.workspace == 8192 * 4096 * 4, "the smaller operand is copied"
    assert chosen(meta(4096, 4098, 8192)) == "vendor"  # TMA cannot read such rows
    in_tf32 = engine.plan(request)
    assert in_tf32.problem.dtype == "tfloat32"
    monkeypatch.setattr(engine, "tf32_allowed", lambda: False)
    assert engine.plan(request).chosen.algorithm == "strassen3"


def test_named_schemes_run_at_any_size(device):
    request = small(scheme="strassen")
    out = torch.empty(64, 64)
    engine.run(engine.plan(request), request, out)
    assert device.ran == ["portable"]
    assert (out == 1).all()


def test_what_ran_is_counted(device):
    counters.stats(reset=True)
    request = small(scheme="strassen")
    plan = engine.plan(request)
    engine.run(plan, request, torch.empty(64, 64))
    assert counters.last_plan() is plan
    assert counters.stats()["strassen"].multiplications_saved == 64 * 64 * 256 // 8


def test_while_a_graph_is_captured_only_what_has_run_runs(device):
    request = small(bias=torch.randn(64))
    plan = engine._plan(request.product, checked_options(scheme="strassen"), -1, None)
    out = torch.empty(64, 64)
    device.capturing = True
    engine.run(plan, request, out)
    torch.testing.assert_close(out, request.a @ request.b + request.bias)
    device.capturing = False
    engine.run(plan, request, out)
    device.capturing = True
    engine.run(plan, request, out)
    assert device.ran == ["portable"] * 2


def test_an_explicit_request_is_not_replaced(device):
    request = small(scheme="strassen")
    device.capturing = True
    with pytest.raises(TiercelRuntimeError, match="has not run before the CUDA graph"):
        engine.run(engine.plan(request), request, torch.empty(64, 64))


def test_addresses_that_tma_cannot_read_are_torchs(device):
    memory = torch.randn(64 * 256 + 1).bfloat16()
    a, w = memory[1:].view(64, 256), torch.randn(64, 256).bfloat16()
    plan = engine._plan(
        small(dtype=torch.bfloat16).product, checked_options(scheme="classical"), -1, None
    )
    out = torch.empty(64, 64, dtype=torch.bfloat16)
    engine.run(plan, Request(a, w.t(), None, DEFAULT), out)
    torch.testing.assert_close(out, a @ w.t())
    aligned = a.clone()
    engine.run(plan, Request(aligned, w.t(), None, DEFAULT), out)
    assert device.ran == ["plain"]


@pytest.mark.parametrize("lack", [torch.OutOfMemoryError, LaunchRefused])
def test_without_what_a_scheme_needs_torch_multiplies(device, monkeypatch, lack):
    def missing(plan, request, out):
        raise lack

    monkeypatch.setattr(run, "_RUN", {"portable": missing})
    request, out = small(), torch.empty(64, 64)
    plan = engine._plan(request.product, checked_options(scheme="strassen"), -1, None)
    engine.run(plan, request, out)
    torch.testing.assert_close(out, request.a @ request.b)
    assert counters.last_plan().chosen.algorithm == "vendor"
    with pytest.raises(lack):
        engine.run(plan, small(scheme="strassen"), out)


@pytest.mark.parametrize("name", [None, "relu", "gelu", "gelu_tanh", "silu"])
@pytest.mark.parametrize("biased", [False, True])
def test_bias_and_epilogue_in_place(name, biased):
    out, bias = torch.randn(5, 7), torch.randn(7) if biased else None
    expected = with_epilogue(out + bias if biased else out, name)
    ending.finish(out, bias, name)
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("name", ["relu", "gelu", "gelu_tanh", "silu"])
def test_traced_epilogues_are_the_named_ones(name):
    import numpy as np

    x, bias = torch.randn(4, 6, dtype=torch.float64), torch.randn(6, dtype=torch.float64)
    found = ending.traced(name, True)(x.numpy(), bias=bias.numpy())
    np.testing.assert_allclose(found, with_epilogue(x + bias, name).numpy(), atol=1e-12)
    found = ending.traced(name, False)(x.numpy())
    np.testing.assert_allclose(found, with_epilogue(x, name).numpy(), atol=1e-12)


def test_last_rows_that_do_not_divide_are_torchs(device, monkeypatch):
    monkeypatch.undo()  # the real runner, with a fake kernel
    monkeypatch.setattr(torch.cuda, "current_device", lambda: -1)
    rows = []

    def multiply(a, out, any_scale, tracked):
        rows.append((len(a), any_scale))
        torch.mm(a, w.t(), out=out)

    a, w = torch.randn(35, 32).bfloat16(), torch.randn(48, 32).bfloat16()
    packed = Packed("winograd", SimpleNamespace(multiply=multiply), 0, "fused")
    plan = SimpleNamespace(
        chosen=SimpleNamespace(fringe=3), problem=SimpleNamespace(accuracy="fast")
    )
    out = torch.empty(35, 48, dtype=torch.bfloat16)
    request = Request(a, w.t(), None, checked_options(epilogue="relu"), packed)
    variants.fused(plan, request, out)
    assert rows == [(32, True)]
    torch.testing.assert_close(out, torch.relu(a @ w.t()))


@pytest.mark.parametrize(("biased", "name"), [(True, None), (False, "relu"), (True, "gelu")])
def test_bias_and_epilogue_are_the_schemes_kernels(monkeypatch, biased, name):
    ended = []

    def end(a, out, epilogue, operands, any_scale):
        ended.append((epilogue.name, list(operands), any_scale))

    a, b = torch.randn(32, 32).bfloat16(), torch.randn(32, 48).bfloat16()
    bias = torch.randn(48).bfloat16() if biased else None
    packed = Packed("winograd", SimpleNamespace(multiply_and_end=end), 0, "fused")
    plan = SimpleNamespace(
        chosen=SimpleNamespace(fringe=0), problem=SimpleNamespace(accuracy="standard")
    )
    request = Request(a, b, bias, checked_options(epilogue=name), packed)
    variants.fused(plan, request, torch.empty(32, 48, dtype=torch.bfloat16))  # type: ignore[arg-type]
    expected = "_".join(x for x in ("bias" if biased else "", name or "") if x)
    assert ended == [(expected, ["bias"] if biased else [], False)]


@pytest.mark.parametrize("scheme", [None, "winograd"])
@pytest.mark.parametrize("kind", ["fused", "portable"])
def test_only_products_that_nobody_insists_on_rest_after_a_refusal(monkeypatch, kind, scheme):
    resting = SimpleNamespace(allows=lambda: False)
    monkeypatch.setattr(run, "capturing", lambda: False)
    monkeypatch.setattr(run, "refusals_of", lambda plan, b: resting)
    packed = Packed("winograd", SimpleNamespace(refusals=resting), 0, kind)
    plan = SimpleNamespace(chosen=SimpleNamespace(variant=SimpleNamespace(kind=kind)))
    a, b = torch.randn(32, 32).bfloat16(), torch.randn(32, 32).bfloat16()
    request = Request(a, b, None, checked_options(scheme=scheme), packed)
    assert ("refused" in run.why_not_now(plan, request)) == (scheme is None)  # type: ignore[arg-type]


def test_packing_follows_the_plan_of_a_prefill(device, monkeypatch):
    made = []
    monkeypatch.setattr(fused, "pack", lambda b, name: made.append((b.shape, name)) or "fused")
    monkeypatch.setattr(
        cuda_packed, "pack", lambda b, name, variant: made.append((b.shape, name)) or "sums"
    )
    w = torch.empty(28672, 8192, device="meta", dtype=torch.bfloat16)
    assert engine.pack(w, DEFAULT) == "fused"
    assert engine.pack(w.float(), DEFAULT) == "sums"
    assert made == [((8192, 28672), "lean-4x2x4"), ((8192, 28672), "strassen3")]
    nothing = engine.pack(torch.empty(512, 512, device="meta"), DEFAULT)
    assert (nothing.panels, nothing.nbytes) == (None, 0)


def test_batch_invariance_is_one_tile_of_the_own_kernel(device):
    request = small(dtype=torch.bfloat16, batch_invariant=True)
    assert chosen(request) == "classical"
    with pytest.raises(TiercelTypeError, match="allowed: bfloat16 and float16 on a Hopper"):
        engine.plan(small(batch_invariant=True))
    device.hopper = "compute capability 8.0"
    engine._plan.cache_clear()
    with pytest.raises(TiercelTypeError, match=r"compute capability 8\.0"):
        engine.plan(request)


def test_dtypes_that_are_left_to_torch(device, monkeypatch):
    monkeypatch.setattr(engine, "tf32_allowed", lambda: False)
    assert engine.why_not(torch.float32) == engine.why_not(torch.bfloat16) == ""
    monkeypatch.setattr(engine, "tf32_allowed", lambda: True)
    assert engine.why_not(torch.float32) == ""
    device.hopper = "no driver"
    assert "no driver" in engine.why_not(torch.float16)
    assert "TF32" in engine.why_not(torch.float32)
    assert engine.why_not(torch.float64) == ""
    monkeypatch.setattr(engine, "why_no_sums", lambda: "no Triton")
    assert engine.why_not(torch.float64) == "no Triton"
    assert (
        engine.why_not_packed(torch.empty(2, 2, dtype=torch.int32))
        == "no packed form of torch.int32"
    )


@pytest.mark.parametrize("capturing", [False, True])
def test_cublas_begins_before_the_first_product(capturing, monkeypatch):
    done = []

    @contextmanager
    def allowed():
        done.append("allowed")
        yield
        done.append("forbidden")

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_blas_handle", lambda: done.append("begun"))
    monkeypatch.setattr(cuda_machine, "capturing", lambda: capturing)
    monkeypatch.setattr(cuda_machine, "find_spec", lambda name: True)
    monkeypatch.setattr(driver, "allowed_while_capturing", allowed)
    engine.begin()
    assert done == (["allowed", "begun", "forbidden"] if capturing else ["begun"])


@pytest.fixture
def unknown(monkeypatch, empty_cache):
    """A GPU that no profile is shipped for; its vendor's library runs at 10 TFLOP/s."""
    facts = SimpleNamespace(
        name="Made-up GPU", multi_processor_count=80, major=8, minor=6, total_memory=24 << 30
    )
    timed = []
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: facts)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: facts.name)
    monkeypatch.setattr(torch.cuda, "device", lambda device: torch.no_grad())
    monkeypatch.setattr(cuda_machine, "capturing", lambda: False)
    monkeypatch.setattr(cuda_machine, "_in_memory", {})
    squares = {side: cuda_machine.Timing(2 * side**3 / 1e13, 0.02) for side in (1024, 4096)}
    monkeypatch.setattr(cuda_machine, "_squares", lambda dtype: timed.append(dtype) or squares)
    monkeypatch.setattr(cuda_machine, "_timing", lambda call: cuda_machine.Timing(1e-3, 0.05))
    empty = torch.empty
    monkeypatch.setattr(
        torch, "empty", lambda *size, device=None, **kw: empty(*size, device="meta", **kw)
    )
    caches = (cuda_machine._known, cuda_machine.why_not_hopper)
    for cached in caches:
        cached.cache_clear()
    yield timed
    for cached in caches:
        cached.cache_clear()


def test_an_unknown_gpu_is_measured_once_for_a_dtype(unknown, monkeypatch):
    machine = cuda_machine.machine_for(0, torch.float32)
    assert machine.measured
    assert machine.copy == pytest.approx(2 * cuda_machine.COPIED / 1e6)
    assert machine.rates["float32"].at(4096) == pytest.approx(10.0)
    assert "timings within 5%" in str(machine)
    assert cuda_machine.machine_for(0, torch.float32) is machine
    monkeypatch.setattr(cuda_machine, "_in_memory", {})  # another process
    assert cuda_machine.machine_for(0, torch.float32) == machine
    assert unknown == [torch.float32]


def test_an_unknown_gpu_leaves_16_bits_and_captured_graphs_to_the_vendor(unknown, monkeypatch):
    assert cuda_machine.machine_for(0, torch.bfloat16).rates == {}
    monkeypatch.setattr(cuda_machine, "capturing", lambda: True)
    assert cuda_machine.machine_for(0, torch.float32).rates == {}
    assert unknown == []


def test_part_of_a_known_gpu_is_another_machine(unknown, monkeypatch):
    facts = torch.cuda.get_device_properties(0)
    facts.name, facts.multi_processor_count = "NVIDIA H200", 60
    cuda_machine._known.cache_clear()
    assert cuda_machine.machine_for(0, torch.float64).measured
    facts.multi_processor_count = 132
    cuda_machine._known.cache_clear()
    known = cuda_machine.machine_for(0, torch.float64)
    assert not known.measured
    assert known.memory == facts.total_memory
    assert known.plain is None, "no driver here"
    assert (
        replace(
            known,
            memory=H200.memory,
            prepare=0.0,
            plain=H200.plain,
            fused=H200.fused,
            plain_tf32=H200.plain_tf32,
            fused_tf32=H200.fused_tf32,
            notes={},
            fingerprint=H200.fingerprint,
        )
        == H200
    )


def test_timing_takes_the_median_of_turns(monkeypatch):
    turns = iter([3e-3, 1.0, 2.0, 9.0, 2.5, 2.2])
    monkeypatch.setattr(cuda_machine, "_elapsed", lambda call, count: next(turns))
    assert cuda_machine._timing(lambda: None) == (2.2, pytest.approx(8 / 2.2))
    counts = []
    monkeypatch.setattr(cuda_machine, "_elapsed", lambda call, count: counts.append(count) or 1e-4)
    cuda_machine._timing(lambda: None)
    assert counts == [1, *[math.ceil(10)] * 5]
