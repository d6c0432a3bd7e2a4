"""``tiercel.matmul``, ``linear``, ``pack`` and ``patch`` on CUDA tensors, judged by float64."""

import time
from dataclasses import replace
from functools import partial
from threading import Thread

import pytest
import torch
from torch.nn import functional as F

import tiercel
from tests.gpu import unkind
from tests.gpu.portable import error, laid_out, normal
from tiercel import epilogues
from tiercel.frontends.torch.cuda import engine, refusals, run
from tiercel.frontends.torch.engine import Request
from tiercel.options import DEFAULT
from tiercel.targets.hopper.products.product import gemm

pytestmark = pytest.mark.gpu

ROWS = 64  # of the result that are judged


def relative(found, a, b, bias=None, function=None):
    """Error of the first rows against float64."""
    wide = torch.complex128 if a.is_complex() else torch.float64
    reference = a[:ROWS].to(wide) @ b.to(wide)
    reference = reference if bias is None else reference + bias.to(wide)
    return error(found[:ROWS], reference if function is None else function(reference))


@pytest.fixture(autouse=True)
def nothing_refused(monkeypatch):
    """Products rest after refusals, which are known by addresses that tests may share."""
    monkeypatch.setattr(refusals, "_sites", {})


@pytest.fixture(autouse=True)
def ieee_float32():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.fixture(scope="module")
def weight():
    """A frozen bfloat16 weight (N, K) that is worth packing on an H200."""
    return normal(28672, 8192, dtype=torch.bfloat16) / 8192**0.5


def last_plan():
    """What ran just now."""
    plan = tiercel.last_plan()
    assert plan is not None
    return plan


def algorithm(a, b) -> str:
    plan = engine.plan(Request(a, b, None, DEFAULT))
    return "vendor" if plan is None else plan.chosen.algorithm


@pytest.mark.parametrize(
    ("dtype", "n"),
    [
        (torch.float32, 4096),
        (torch.float64, 8192),
        (torch.complex64, 2560),
        (torch.complex128, 2560),
    ],
)
def test_error_stays_within_the_predicted_growth(dtype, n):
    a, b = normal(n, n, dtype=dtype), normal(n, n, dtype=dtype, seed=1)
    found = tiercel.matmul(a, b)
    plan = last_plan()
    # In double precision the reference itself is off by as much as the vendor's.
    least = 2e-14 if dtype.itemsize >= 8 and dtype is not torch.complex64 else 0.0
    ours, vendors = relative(found, a, b), relative(a @ b, a, b)
    assert ours <= max(least, 1.5 * plan.chosen.growth * vendors)


@pytest.mark.parametrize("layout", ["row", "column", "strided"])
def test_odd_sizes_and_layouts(layout):
    M, K, N = 6001, 6007, 6011
    a = laid_out(normal(M, K, dtype=torch.float32), layout)
    b = laid_out(normal(K, N, dtype=torch.float32, seed=1), layout)
    assert algorithm(a, b) != "vendor"
    found = tiercel.matmul(a, b)
    assert relative(found, a, b) <= 6 * relative(a @ b, a, b)


def test_stacks_are_as_accurate_as_their_matrices():
    a = normal(2, 4096, 4096, dtype=torch.float32)
    b = normal(2, 4096, 4096, dtype=torch.float32, seed=1)
    found = tiercel.matmul(a, b)
    for i in range(2):
        assert relative(found[i], a[i], b[i]) <= 6 * relative(a[i] @ b[i], a[i], b[i])


@pytest.mark.parametrize("name", ["relu", "gelu", "gelu_tanh", "silu"])
def test_bias_and_epilogue_of_the_own_kernel(name):
    x = normal(8192, 4096, dtype=torch.bfloat16)
    w = normal(14336, 4096, dtype=torch.bfloat16, seed=1) / 64
    bias = normal(14336, dtype=torch.bfloat16, seed=2)
    function = partial(F.gelu, approximate="tanh") if name == "gelu_tanh" else getattr(F, name)
    found = tiercel.linear(x, w, bias, epilogue=name)
    vendors = function(F.linear(x, w, bias))
    ours = relative(found, x, w.t(), bias, function)
    assert ours <= 1.05 * relative(vendors, x, w.t(), bias, function)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_traced_epilogues(dtype):
    x, w = normal(500, 512, dtype=dtype), normal(768, 512, dtype=dtype, seed=1) / 512**0.5
    residual, gamma = normal(500, 768, dtype=dtype, seed=2), normal(768, dtype=dtype, seed=3)
    given = epilogues.residual_rms.given(residual=residual, gamma=gamma)
    found = tiercel.linear(x, w, epilogue=given)
    hidden = x.double() @ w.double().t() + residual.double()
    tolerance = 5e-3 if dtype is torch.bfloat16 else 1e-5
    assert error(found["hidden"], hidden) < tolerance
    assert error(found["out"], hidden * gamma.double()) < tolerance
    assert error(found["sum_of_squares"], hidden.square().sum(1, keepdim=True)) < tolerance
    gate, up = (x.double() @ w.double().t()).unflatten(1, (-1, 2)).unbind(-1)
    found = tiercel.linear(x, w, epilogue=epilogues.swiglu)
    assert error(found, F.silu(gate) * up) < tolerance


def packed_for_winograd(weight):
    packed = tiercel.pack(weight.t(), scheme="winograd")
    assert packed.algorithm == "winograd"
    return packed


@pytest.mark.parametrize("rows", [8192, 16383])
def test_packed_weights(weight, rows):
    x = normal(rows, 8192, dtype=torch.bfloat16, seed=1)
    found = tiercel.linear(x, packed_for_winograd(weight), scheme="winograd")
    assert last_plan().chosen.algorithm == "winograd"
    assert relative(found, x, weight.t()) <= 1.10 * relative(F.linear(x, weight), x, weight.t())


def test_every_call_has_other_arrays(weight):
    packed, kept = packed_for_winograd(weight), []
    b = normal(8192, 28672, dtype=torch.bfloat16, seed=7) / 8192**0.5
    for seed in range(4):
        x = normal(8192, 8192, dtype=torch.bfloat16, seed=seed)
        apart = torch.empty(seed + 1 << 20, device="cuda")  # the workspace's address, too
        static = tiercel.linear(x, packed, scheme="winograd")
        dynamic = tiercel.matmul(x, b, scheme="winograd")
        kept.append((x, apart, static, dynamic))
    for x, _, static, dynamic in kept:
        for found, right in ((static, weight.t()), (dynamic, b)):
            assert relative(found, x, right) <= 1.10 * relative(x @ right, x, right)


@pytest.mark.parametrize("name", [None, "gelu"])
def test_bias_of_a_packed_weight_is_added_before_rounding(weight, name):
    packed, kept = packed_for_winograd(weight), []
    function = None if name is None else F.gelu
    for seed in range(3):
        x = normal(8192, 8192, dtype=torch.bfloat16, seed=seed)
        bias = normal(28672, dtype=torch.bfloat16, seed=seed + 5)
        kept.append((x, bias, tiercel.linear(x, packed, bias, epilogue=name, scheme="winograd")))
    for x, bias, found in kept:
        vendors = F.linear(x, weight, bias)
        vendors = vendors if function is None else function(vendors)
        ours = relative(found, x, weight.t(), bias, function)
        assert ours <= 1.10 * relative(vendors, x, weight.t(), bias, function)


@pytest.mark.parametrize("biased", [False, True])
def test_a_layer_by_the_plain_kernel(biased):
    layer, kept = torch.nn.Linear(4096, 4096, bias=biased, device="meta"), []
    layer.weight = torch.nn.Parameter(normal(4096, 4096, dtype=torch.bfloat16) / 64)
    if biased:
        layer.bias = torch.nn.Parameter(normal(4096, dtype=torch.bfloat16, seed=9))
    with torch.no_grad(), tiercel.patch(layer):
        for seed in range(4):
            x = normal(2, 8192, 4096, dtype=torch.bfloat16, seed=seed)
            kept.append((x, layer(x)))
        ran = last_plan().chosen.algorithm
        for x, found in kept:
            w, bias = layer.weight, layer.bias
            vendors = F.linear(x, w, bias)[0]
            reference = x[0], w.t(), bias
            assert relative(found[0], *reference) <= 1.05 * relative(vendors, *reference)
    assert ran == "classical"


def test_patched_layer_uses_the_weight_as_it_is_now(weight):
    layer = torch.nn.Linear(8192, 28672, bias=False, device="meta")
    layer.weight = torch.nn.Parameter(weight.clone(), requires_grad=False)
    x = normal(8192, 8192, dtype=torch.bfloat16, seed=1)
    with tiercel.patch(layer, pack_weights=True):
        for change in (
            lambda: None,
            lambda: layer.weight.data.mul_(-2),
            lambda: layer.weight.mul_(0.5),
        ):
            change()
            found, vendors = layer(x), F.linear(x, layer.weight)
            reference = (x, layer.weight.t())
            assert relative(found, *reference) <= 1.10 * relative(vendors, *reference)


@pytest.mark.parametrize("kind", unkind.KINDS)
def test_data_that_a_scheme_must_not_touch(weight, kind):
    x = normal(8192, 8192, dtype=torch.bfloat16, seed=1)
    unkind.spoil(x, kind)
    found = tiercel.linear(x, packed_for_winograd(weight), scheme="winograd")
    unkind.assert_classical(found, F.linear(x, weight))


def test_layers_that_share_an_input_combine_it_once():
    K, N, rows = 4096, 8192, 8192
    layers = torch.nn.ModuleList(torch.nn.Linear(K, N, bias=False, device="meta") for _ in range(3))
    for i, layer in enumerate(layers):
        w = normal(N, K, dtype=torch.bfloat16, seed=i) / K**0.5
        layer.weight = torch.nn.Parameter(w, requires_grad=False)
    x = normal(rows, K, dtype=torch.bfloat16, seed=9)
    with torch.no_grad(), tiercel.patch(layers, pack_weights=True):
        # The second and third round write to x: once as torch counts, once for every weight.
        for change in (lambda: None, lambda: x.mul_(-2), lambda: x.copy_(x.flip(0))):
            change()
            for layer in layers:
                vendors = F.linear(x, layer.weight)
                ours = relative(layer(x), x, layer.weight.t())
                assert ours <= 1.10 * relative(vendors, x, layer.weight.t())


def test_nan_stays_in_its_row():
    a, b = normal(4096, 4096, dtype=torch.float32), normal(4096, 4096, dtype=torch.float32, seed=1)
    assert algorithm(a, b) != "vendor"
    a[17, 3] = float("nan")
    found = tiercel.matmul(a, b)
    assert found[17].isnan().all()
    assert found[:17].isfinite().all()
    assert found[18:].isfinite().all()


def test_rows_have_the_same_bits_whatever_the_others_are():
    x, w = (
        normal(4096, 2048, dtype=torch.bfloat16),
        normal(1024, 2048, dtype=torch.bfloat16, seed=1),
    )
    whole = tiercel.linear(x, w, batch_invariant=True)
    for rows in (1, 17, 300):
        assert torch.equal(tiercel.linear(x[:rows], w, batch_invariant=True), whole[:rows])


def test_captured_on_the_first_call_and_later():
    a, b = normal(4096, 4096, dtype=torch.float32), normal(4096, 4096, dtype=torch.float32, seed=1)
    run._ran.clear()
    for _ in range(2):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = tiercel.matmul(a, b)
        ran = last_plan().chosen.algorithm
        a.normal_()
        graph.replay()
        assert relative(found, a, b) <= 6 * relative(a @ b, a, b)
        tiercel.matmul(a, b)
    assert ran == algorithm(a, b) != "vendor"


def test_captured_packed_weight(weight):
    x = normal(8192, 8192, dtype=torch.bfloat16, seed=1)
    multiply = partial(tiercel.linear, x, packed_for_winograd(weight), scheme="winograd")
    multiply()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = multiply()
    x.normal_()
    graph.replay()
    assert relative(found, x, weight.t()) <= 1.10 * relative(F.linear(x, weight), x, weight.t())


def test_side_stream():
    a, b = normal(4096, 4096, dtype=torch.float32), normal(4096, 4096, dtype=torch.float32, seed=1)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        found = tiercel.matmul(a, b)
    stream.synchronize()
    assert relative(found, a, b) <= 6 * relative(a @ b, a, b)


def test_threads_without_work_of_torchs_own():
    """Neither a first product nor one that has run needs a context that is there."""
    x = normal(4104, 4096, dtype=torch.bfloat16)
    w = normal(4096, 4096, dtype=torch.bfloat16, seed=1)
    out, failed = torch.empty_like(x), []

    def multiply():
        try:
            gemm(x, w.t(), out=out)
        except Exception as error:
            failed.append(error)

    for _ in range(2):
        thread = Thread(target=multiply)
        thread.start()
        thread.join()
        assert not failed
        assert relative(out, x, w.t()) <= 2 * relative(x @ w.t(), x, w.t())
        out.zero_()


def test_gradients():
    x, w = (normal(4096, 4096, dtype=torch.float32, seed=i).requires_grad_() for i in range(2))
    g = normal(4096, 4096, dtype=torch.float32, seed=2)
    tiercel.linear(x, w).backward(g)
    assert relative(x.grad, g, w.detach()) <= 6 * relative(g @ w.detach(), g, w.detach())
    assert relative(w.grad, g.t(), x.detach()) <= 6 * relative(
        g.t() @ x.detach(), g.t(), x.detach()
    )


def test_repeated_steps_of_a_layer():
    """Each step has other arrays; from the third one on launches are moved to them."""
    layer = torch.nn.Linear(4096, 14336, bias=False, device="cuda", dtype=torch.bfloat16)
    with tiercel.patch(layer):
        for seed in range(5):
            x = normal(8192, 4096, dtype=torch.bfloat16, seed=seed).requires_grad_()
            g = normal(8192, 14336, dtype=torch.bfloat16, seed=seed + 9)
            w = layer.weight.data = layer.weight.detach().roll(1, 0)
            tiercel.stats(reset=True)
            layer.zero_grad()
            y = layer(x)
            y.backward(g)
            assert sum(count.calls for count in tiercel.stats().values()) == 3
            expected = F.linear(x.detach(), w), g @ w, g.t() @ x.detach()
            for found, wanted, a, b in zip(
                (y.detach(), x.grad, layer.weight.grad), expected,
                (x.detach(), g, g.t()), (w.t(), w, x.detach()), strict=True,
            ):  # fmt: skip
                assert relative(found, a, b) <= 2 * relative(wanted, a, b)


def test_autocast():
    x, w = normal(8192, 4096, dtype=torch.float32), normal(14336, 4096, dtype=torch.float32, seed=1)
    with torch.autocast("cuda", torch.bfloat16):
        found = tiercel.linear(x, w, epilogue="gelu")
        product = tiercel.matmul(x.double(), w.double().t())
    assert found.dtype is torch.bfloat16
    assert relative(found, x.bfloat16(), w.bfloat16().t(), None, F.gelu) < 3e-3
    assert product.dtype is torch.float64
    assert relative(product, x, w.t()) < 1e-13


def test_compiled_whole():
    def function(x, w):
        return torch.relu(tiercel.linear(x, w)) + 1

    x, w = normal(4096, 4096, dtype=torch.float32), normal(4096, 4096, dtype=torch.float32, seed=1)
    found = torch.compile(function, fullgraph=True, backend="aot_eager")(x, w)
    torch.testing.assert_close(found, torch.relu(F.linear(x, w)) + 1, rtol=1e-3, atol=1e-2)


def test_tf32_is_the_users_choice():
    a, b = normal(4096, 4096, dtype=torch.float32), normal(4096, 4096, dtype=torch.float32, seed=1)
    exact = a.double() @ b.double()
    for precision, least, most in (("highest", 0, 1e-5), ("high", 1e-4, 1e-3)):
        torch.set_float32_matmul_precision(precision)
        assert engine.why_not(torch.float32) == ""
        error = (tiercel.matmul(a, b).double() - exact).norm() / exact.norm()
        assert least < error < most


def test_workspace_is_as_planned():
    a, b = normal(4096, 4096, dtype=torch.float32), normal(4096, 4096, dtype=torch.float32, seed=1)
    out = torch.empty(4096, 4096, device="cuda")
    for workspace in (None, "200MiB"):
        tiercel.matmul(a, b, out, workspace=workspace)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_stats()["requested_bytes.all.current"]
        tiercel.matmul(a, b, out, workspace=workspace)
        taken = torch.cuda.memory_stats()["requested_bytes.all.peak"] - before
        assert taken == pytest.approx(last_plan().chosen.workspace, rel=0.01)


def test_workspace_of_a_packed_weight_is_as_planned(weight):
    x = normal(8192, 8192, dtype=torch.bfloat16, seed=1)
    out = torch.empty(8192, 28672, dtype=torch.bfloat16, device="cuda")
    packed = packed_for_winograd(weight)
    options = replace(DEFAULT, scheme="winograd")
    for _ in range(2):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_stats()["requested_bytes.all.current"]
        request = Request(x, weight.t(), None, options, packed.form)
        plan = engine.plan(request)
        assert plan is not None
        engine.run(plan, request, out)
        taken = torch.cuda.memory_stats()["requested_bytes.all.peak"] - before
    assert taken == pytest.approx(plan.chosen.workspace, rel=0.01)


def test_no_memory_is_kept_after_a_call(weight):
    packed = packed_for_winograd(weight)

    def multiply(rows):
        x = normal(rows, 8192, dtype=torch.bfloat16, seed=1)
        tiercel.linear(x, packed, scheme="winograd")

    multiply(4096)
    before = torch.cuda.memory_allocated()
    for _ in range(3):
        apart = torch.empty(1 << 20, device="cuda")  # other addresses each time
        multiply(4096)
        del apart
    assert torch.cuda.memory_allocated() == before


def test_overhead(capsys):
    """Microseconds of the host for a call that is torch's, and for finding a plan again."""
    x, w = normal(16, 4096, dtype=torch.bfloat16), normal(4096, 4096, dtype=torch.bfloat16, seed=1)
    best = {}
    for name, call in (
        ("torch", lambda: F.linear(x, w)),
        ("tiercel", lambda: tiercel.linear(x, w)),
    ):
        call()
        best[name] = min(_seconds(call, 100) for _ in range(20)) * 1e6
    a = normal(4096, 4096, dtype=torch.float32)
    request = Request(a, a, None, DEFAULT)
    best["plan"] = min(_seconds(lambda: engine.plan(request), 100) for _ in range(20)) * 1e6
    with capsys.disabled():
        print(" ".join(f"{name} {value:.1f} us" for name, value in best.items()))
    assert best["plan"] < 10
    assert best["tiercel"] - best["torch"] < 20


def _seconds(call, count: int) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count
