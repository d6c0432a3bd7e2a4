"""``matmul`` and ``grouped_matmul`` as users call them on a Hopper."""

import pytest
import torch

import tiercel
from tiercel import epilogues
from tiercel.errors import TiercelRuntimeError, TiercelTypeError, TiercelValueError

pytestmark = pytest.mark.gpu

M, N, K = 300, 520, 192


def normal(*shape: int, dtype=torch.bfloat16, grad=False):
    return torch.randn(shape, device="cuda").to(dtype).requires_grad_(grad)


def error(found, wanted) -> float:
    return ((found.double() - wanted).norm() / wanted.norm()).item()


def kernels_of(call) -> list[str]:
    call()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call()
        torch.cuda.synchronize()
    return [e.name for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("target", [None, "hopper"])
def test_alpha_beta_c_and_bias(dtype, target):
    a, b, c, bias = (normal(*s, dtype=dtype) for s in ((M, K), (K, N), (M, N), (N,)))
    wanted = (0.5 * (a.double() @ b.double()) - 2 * c.double() + bias.double()).relu()
    found = tiercel.matmul(a, b, c=c, alpha=0.5, beta=-2, bias=bias, epilogue="relu", target=target)
    assert found.dtype is dtype
    assert error(found, wanted) < 3e-3
    row = tiercel.matmul(a, b, c=bias, target=target)
    assert error(row, a.double() @ b.double() + bias.double()) < 3e-3


def test_one_launch_for_everything_around_the_product():
    a, b, c, bias = (normal(*s) for s in ((512, 512), (512, 512), (512, 512), (512,)))
    launched = kernels_of(
        lambda: tiercel.matmul(a, b, c=c, alpha=2.0, bias=bias, epilogue=epilogues.swiglu)
    )
    assert launched == ["gemm"]


def test_operands_by_name_and_several_outputs():
    a, b, h, gamma = (normal(*s) for s in ((M, K), (K, N), (M, N), (N,)))
    found = tiercel.matmul(a, b, epilogue=epilogues.residual_rms, residual=h, gamma=gamma)
    truth = epilogues.residual_rms.evaluate(
        (a.double() @ b.double()).cpu().numpy(),
        {"residual": h.double().cpu().numpy(), "gamma": gamma.double().cpu().numpy()},
    )
    assert found.keys() == truth.keys()
    for name, value in truth.items():
        assert error(found[name].cpu(), torch.from_numpy(value)) < 5e-3


@pytest.mark.parametrize(
    ("left", "right"),
    [((3, M, K), (3, K, N)), ((3, M, K), (K, N)), ((M, K), (3, K, N)), ((2, 3, 64, K), (3, K, N))],
)
def test_batches_broadcast_like_torchs(left, right):
    a, b = normal(*left), normal(*right)
    found = tiercel.matmul(a, b, target="hopper")
    wanted = a.double() @ b.double()
    assert found.shape == wanted.shape
    assert error(found, wanted) < 3e-3


def test_out_is_written_in_place_or_copied_to():
    a, b = normal(M, K), normal(K, N)
    out = torch.empty(M, N, device="cuda", dtype=torch.bfloat16)
    assert tiercel.matmul(a, b, out, target="hopper") is out
    strided = torch.empty(M, N, 2, device="cuda", dtype=torch.bfloat16)[..., 0]
    assert tiercel.matmul(a, b, strided, target="hopper") is strided
    assert torch.equal(out, strided)
    assert torch.equal(out, tiercel.matmul(a, b, target="hopper"))


def test_gradients():
    a, b, bias = normal(M, K, grad=True), normal(K, N, grad=True), normal(N, grad=True)
    weights = normal(M, N)

    def grads(call):
        return torch.autograd.grad((call() * weights).sum().float(), (a, b, bias))

    found = grads(lambda: tiercel.matmul(a, b, bias=bias, epilogue="gelu", target="hopper"))
    with torch.no_grad():
        exact = [x.double().requires_grad_() for x in (a, b, bias)]
    y = torch.nn.functional.gelu(exact[0] @ exact[1] + exact[2])
    wanted = torch.autograd.grad((y * weights.double()).sum(), exact)
    assert all(error(x, y) < 1e-2 for x, y in zip(found, wanted, strict=True))


def test_a_graph_captures_the_first_call():
    a, b = normal(264, 136), normal(136, 328)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = tiercel.matmul(a, b, target="hopper")
    graph.replay()
    assert error(out, a.double() @ b.double()) < 3e-3


def test_float8_and_tf32():
    a, b = (normal(*s).to(torch.float8_e4m3fn) for s in ((M, K), (N, K)))
    assert error(tiercel.matmul(a, b.t(), target="hopper"), a.double() @ b.double().t()) < 3e-3
    x, y = (normal(*s, dtype=torch.float32) for s in ((M, K), (N, K)))
    with pytest.raises(TiercelTypeError, match="TF32"):
        tiercel.matmul(x, y.t(), target="hopper")
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        found = tiercel.matmul(x, y.t(), target="hopper")
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False
    assert error(found, x.double() @ y.double().t()) < 1e-3


def test_what_the_kernel_cannot_do_is_named():
    a, b = normal(64, 64), normal(64, 64)
    with pytest.raises(TiercelTypeError, match=r"b is .*on cpu"):
        tiercel.matmul(a, b.cpu(), target="hopper")
    with pytest.raises(TiercelTypeError, match="a is bfloat16 and b is float16"):
        tiercel.matmul(a, b.half(), target="hopper")
    with pytest.raises(TiercelTypeError, match="float64"):
        tiercel.matmul(a.double(), b.double(), target="hopper")
    with pytest.raises(TiercelValueError, match="strides"):
        tiercel.matmul(normal(64, 67)[:, :64], b, target="hopper")


def test_cupy_arrays_give_cupy_arrays():
    import cupy  # pyright: ignore[reportMissingImports]

    a, b = (cupy.random.standard_normal(s).astype("float16") for s in ((M, K), (K, N)))
    wanted = cupy.asnumpy(a).astype("f8") @ cupy.asnumpy(b).astype("f8")
    with cupy.cuda.Stream(non_blocking=True):
        found = tiercel.matmul(a, b, target="hopper")
        doubled = tiercel.matmul(a, b, alpha=2.0, c=a[:, :1])
        assert isinstance(found, cupy.ndarray)
        assert isinstance(doubled, cupy.ndarray)
        out = cupy.empty((M, N), "float16")
        assert tiercel.matmul(a, b, out=out, epilogue="relu") is out
        found, doubled, out = (cupy.asnumpy(x).astype("f8") for x in (found, doubled, out))
    first = cupy.asnumpy(a)[:, :1].astype("f8")
    for x, y in ((found, wanted), (doubled, 2 * wanted + first), (out, wanted.clip(0))):
        assert error(torch.from_numpy(x), torch.from_numpy(y)) < 1e-3
    with pytest.raises(TiercelRuntimeError, match="int64"):
        tiercel.matmul(a.astype("int64"), b.astype("int64"), target="hopper")
    whole = tiercel.matmul(a.astype("int32"), b.astype("int32"))  # CuPy's own
    assert isinstance(whole, cupy.ndarray)


def test_grouped_products_of_experts_and_their_gradients():
    sizes = [100, 0, 37, 163]
    a, b = normal(sum(sizes), K, grad=True), normal(len(sizes), K, N, grad=True)
    ends = torch.tensor(sizes, device="cuda").cumsum(0)
    found = tiercel.grouped_matmul(a, b, ends)
    x, y = a.detach().double().requires_grad_(), b.detach().double().requires_grad_()
    wanted = torch.cat([s @ w for s, w in zip(x.split(sizes), y, strict=True)])
    assert error(found, wanted) < 3e-3
    weights = normal(*found.shape)
    grads = torch.autograd.grad((found * weights).sum(), (a, b))
    exact = torch.autograd.grad((wanted * weights.double()).sum(), (x, y))
    assert all(error(g, e) < 1e-2 for g, e in zip(grads, exact, strict=True))


def test_grouped_products_follow_torchs():
    a, b, ends = normal(256, K), normal(3, N, K).mT, torch.tensor([30, 31, 256], device="cuda")
    theirs = torch._grouped_mm(a, b, offs=ends.int())
    assert error(tiercel.grouped_matmul(a, b, ends), theirs.double()) < 3e-3
    odd = tiercel.grouped_matmul(a[:, :63], b[:, :63, :33], ends)  # no layout for the kernel
    assert error(odd[:30], a[:30, :63].double() @ b[0, :63, :33].double()) < 3e-3
