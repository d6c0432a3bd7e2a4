"""``target="hopper"`` without a GPU: what is called with what, and what is refused."""

import struct
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

import tiercel
from tiercel import epilogues
from tiercel.errors import TiercelRuntimeError, TiercelTypeError, TiercelValueError
from tiercel.frontends.torch import hopper
from tiercel.targets.hopper.config import Config
from tiercel.targets.hopper.epilogues import arrivals
from tiercel.targets.hopper.launching.launch import run
from tiercel.targets.hopper.operands import operand
from tiercel.targets.hopper.products import grouped, heuristic
from tiercel.targets.hopper.products import launch as plain_launch


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels' names as they are called; torch computes in their place."""
    called: list[str] = []

    def gemm(a, b, out=None, tf32=False):
        called.append("gemm")
        if a.stride(-1) != 1 and a.stride(-2) != 1:
            raise TiercelValueError("a has strides")
        return torch.matmul(a, b, out=out)

    def gemm_epilogue(a, b, epilogue, operands):
        called.append(f"gemm_epilogue {epilogue.name}")
        return hopper.evaluated(epilogue.given(**operands), a @ b)

    monkeypatch.setattr(hopper, "check", lambda a, b, options: None)
    monkeypatch.setattr(hopper, "_known", {})
    monkeypatch.setattr(hopper, "gemm", gemm)
    monkeypatch.setattr(hopper, "gemm_epilogue", gemm_epilogue)
    return called


@pytest.mark.parametrize(
    ("left", "right"),
    [((6, 4), (4, 5)), ((3, 6, 4), (4, 5)), ((6, 4), (3, 4, 5)), ((2, 3, 6, 4), (3, 4, 5))],
)
def test_any_number_of_batch_axes(calls, left, right):
    a, b = torch.randn(left), torch.randn(right)
    torch.testing.assert_close(tiercel.matmul(a, b, target="hopper"), a @ b)
    assert calls == ["gemm"]


def test_everything_around_a_product_is_one_call(calls):
    a, b, c, bias = (torch.randn(s).half() for s in ((6, 4), (4, 8), (6, 8), (8,)))
    found = tiercel.matmul(
        a, b, c=c, alpha=2.0, bias=bias, epilogue=epilogues.swiglu, target="hopper"
    )
    wanted = epilogues.swiglu((2 * (a @ b).float() + c.float() + bias.float()).numpy())
    torch.testing.assert_close(found.float(), torch.from_numpy(wanted), rtol=0.01, atol=0.01)
    tiercel.matmul(a, b, bias=bias, epilogue="relu", target="hopper")
    assert calls == ["gemm_epilogue affine_swiglu", "gemm_epilogue affine_relu"]


def test_gradients_run_by_the_kernel_where_it_can(calls):
    a = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    b = torch.randn(3, 4, 5, dtype=torch.float64, requires_grad=True)

    def call(a, b):
        return tiercel.matmul(a, b, epilogue="gelu", target="hopper")

    assert torch.autograd.gradcheck(call, (a, b))
    calls.clear()
    torch.autograd.grad(tiercel.matmul(a, b, target="hopper").sum(), (a, b))
    assert calls == ["gemm", "gemm", "gemm"]


def test_a_repeated_call_is_not_looked_at_again(calls, monkeypatch):
    a, b = torch.randn(6, 4, requires_grad=True), torch.randn(4, 5)
    with torch.no_grad():
        tiercel.matmul(a, b, target="hopper")
    looked = []
    monkeypatch.setattr(hopper, "check", lambda a, b, options: looked.append(a.shape))
    torch.testing.assert_close(tiercel.matmul(a.detach(), b, target="hopper"), a.detach() @ b)
    assert looked == []
    assert tiercel.matmul(a, b, target="hopper").requires_grad
    tiercel.matmul(a.detach().double(), b.double(), target="hopper")
    tiercel.matmul(a.detach(), b, target="hopper", accuracy="fast")
    tiercel.matmul(a.detach()[:0], b, target="hopper")
    assert looked == [(6, 4), (6, 4), (6, 4), (0, 4)]


def test_out_is_filled_and_returned(calls):
    a, b, out = torch.randn(6, 4), torch.randn(4, 5), torch.empty(6, 5)
    assert tiercel.matmul(a, b, out, target="hopper") is out
    torch.testing.assert_close(out, a @ b)


def test_refusals_say_where_the_operands_are_and_what_is_missing(monkeypatch):
    a = torch.randn(4, 4)
    with pytest.raises(TiercelTypeError, match=r"a is a Tensor \(4, 4\) on cpu"):
        tiercel.matmul(a, a, target="hopper")
    with pytest.raises(TiercelTypeError, match="not ndarray and ndarray"):
        tiercel.matmul(a.numpy(), a.numpy(), target="hopper")
    with pytest.raises(TiercelValueError, match="target='ampere' is not known; allowed: 'hopper'"):
        tiercel.matmul(a, a, target="ampere")

    class OnDevice(SimpleNamespace):
        is_cuda, dtype, shape = True, torch.bfloat16, (4, 4)

        def dim(self):
            return 2

        def numel(self):
            return 16

        def get_device(self):
            return 1

    monkeypatch.setattr(hopper, "are_plain", lambda *x: True)
    asked = []

    def available(device):
        asked.append(device)
        return "device 1 has compute capability 8.0; the kernels need 9.0"

    monkeypatch.setattr(hopper.hopper, "available", available)
    x = OnDevice()
    with pytest.raises(TiercelRuntimeError, match=r"capability 8.0.* Leave target out"):
        hopper.check(x, x, hopper.Options(target="hopper"))
    assert asked == [1]
    monkeypatch.setattr(hopper.hopper, "available", lambda device: None)
    with pytest.raises(TiercelTypeError, match="leave scheme, verify and batch_invariant out"):
        hopper.check(x, x, hopper.Options(target="hopper", scheme="strassen"))


def test_a_kernel_runs_on_its_operands_device_and_stream(monkeypatch):
    entered, ran = [], []

    @contextmanager
    def device(number):
        entered.append(number)
        yield
        entered.append("left")

    monkeypatch.setattr(torch.cuda, "device", device)
    monkeypatch.setattr(
        torch._C, "_cuda_getCurrentRawStream", lambda device: 70 + device, raising=False
    )
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    launch = SimpleNamespace(run=lambda stream: ran.append((stream, list(entered))))
    for number in (1, 0):
        run(launch, SimpleNamespace(get_device=lambda number=number: number), None)
    assert ran == [(71, [1]), (70, [1, "left"])]


@pytest.mark.parametrize("capturing", [False, True])
def test_counters_are_cleared_on_their_own_device(monkeypatch, capturing):
    current, cleared = [0], []

    @contextmanager
    def device(number):
        before, current[0] = current[0], number
        yield
        current[0] = before

    def asked():
        assert current == [1]
        return capturing

    zeros = torch.zeros(5000, dtype=torch.int32)
    monkeypatch.setattr(torch.cuda, "device", device)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: current[0], raising=False)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", asked)
    monkeypatch.setattr(torch, "empty", lambda count, dtype, device: zeros)
    monkeypatch.setattr(arrivals, "lasting", lambda words, device, stream: zeros)
    monkeypatch.setattr(arrivals, "_of_stream", {})
    monkeypatch.setattr(arrivals, "clear_words", lambda *_: cleared.append(current[0]))
    assert arrivals.arrivals(1, 7, 4000) is zeros
    assert cleared == ([1] if capturing else [])


def test_kernels_and_their_sizes_are_kept_for_each_device(monkeypatch):
    loaded = []
    monkeypatch.setattr(plain_launch, "cubin", lambda text, name: b"code")
    monkeypatch.setattr(plain_launch, "Kernel", lambda code, device, *rest: loaded.append(device))
    tile = heuristic.CANDIDATES[0]
    config = Config(tile, "float16", "float16", False, True, grouped=True)
    plain_launch.kernel.cache_clear()
    for device in (0, 1, 0):
        plain_launch.kernel(config, device)
    plain_launch.kernel.cache_clear()
    assert loaded == [0, 1]


def test_a_call_describes_its_groups_once(monkeypatch):
    launched = []
    for module in (grouped, plain_launch):
        monkeypatch.setattr(module, "multiprocessors", lambda device: 132)
    monkeypatch.setattr(grouped, "check_devices", lambda named: None)
    monkeypatch.setattr(grouped, "kernel", lambda config, device: (config, device))
    monkeypatch.setattr(operand, "tensor_map", lambda *description: bytes(128))
    monkeypatch.setattr(grouped, "Arguments", lambda content: content)
    monkeypatch.setattr(grouped, "run", lambda ready, a, stream: launched.append(ready))
    a, b = torch.zeros(3000, 256).half(), torch.zeros(5, 512, 256).half().mT
    offsets = torch.zeros(6, dtype=torch.int64)
    tile = heuristic.CANDIDATES[0]
    out = grouped.grouped_gemm(a, b, offsets, config=tile)
    assert grouped.grouped_gemm(a, b, offsets, out=out, config=tile) is out
    first, second = launched
    assert first is second
    assert first.kernel[0].grouped
    assert first.blocks == 64  # of two: 3000 / 256 + 5 clusters high at most, 2 wide
    packed = struct.pack("<QQqiii", offsets.data_ptr() + 8, out.data_ptr(), 1024, 2, 5, 3000)
    assert packed in first.arguments
