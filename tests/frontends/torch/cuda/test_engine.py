"""The CUDA engine's decisions, without a GPU: a known profile, and recorders instead of kernels."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from tests.planner.gpu.h200 import H200
from tiercel import counters
from tiercel.errors import TiercelRuntimeError, TiercelTypeError
from tiercel.frontends.torch.cuda import engine, fused, refusals, run
from tiercel.frontends.torch.cuda import machine as cuda_machine
from tiercel.frontends.torch.cuda import packed as cuda_packed
from tiercel.frontends.torch.cuda.packed import Packed
from tiercel.frontends.torch.engine import Request
from tiercel.options import DEFAULT, checked_options
from tiercel.targets.gpu import failure
from tiercel.targets.gpu.failure import KernelFailed
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


@pytest.mark.parametrize("lack", [torch.OutOfMemoryError, LaunchRefused, KernelFailed])
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


def test_where_triton_builds_no_kernel_torch_multiplies_from_then_on(device, monkeypatch):
    """It needs a C compiler, which many containers lack, and a folder to write to."""
    monkeypatch.setattr(failure, "_reasons", [])

    def no_compiler(plan, request, out):
        with failure.building():
            device.ran.append("tried")
            raise RuntimeError("Failed to find C compiler.\nPlease specify via CC")

    monkeypatch.setattr(run, "_RUN", {"portable": no_compiler})
    request, out = small(), torch.empty(64, 64)
    plan = engine._plan(request.product, checked_options(scheme="strassen"), -1, None)
    with pytest.warns(RuntimeWarning, match="Failed to find C compiler.*PyTorch multiplies"):
        engine.run(plan, request, out)
    for _ in range(2):
        out.zero_()
        engine.run(plan, request, out)
        torch.testing.assert_close(out, request.a @ request.b)
    assert device.ran == ["tried"]
    with pytest.raises(TiercelRuntimeError, match="cannot run: Triton builds no kernels here"):
        engine.run(plan, small(scheme="strassen"), out)


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
