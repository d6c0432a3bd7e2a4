"""Around the product: accuracy, memory, determinism, streams, graphs."""

import pytest
import torch

from tests.gpu.portable import error, integers, normal, wide
from tiercel.schemes import get, rms_growth
from tiercel.targets.gpu import pack, product, recipe_for, workspace_bytes

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", ["strassen", "winograd", "accurate"])
@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
def test_error_grows_no_more_than_predicted(dtype, levels, name):
    a, b = normal(1024, 1024, dtype=dtype), normal(1024, 1024, dtype=dtype, seed=1)
    if dtype == torch.float64:  # judged on columns whose exact product is affordable
        import numpy as np

        reference = torch.tensor(
            (a[:16].cpu().numpy().astype(np.longdouble) @ b.cpu().numpy().astype(np.longdouble))
            .astype(np.float64)
        ).cuda()  # fmt: skip
    else:
        reference = (wide(a) @ wide(b))[:16]
    ours = error(product(a, b, get(name), levels)[:16], reference)
    gauss = 1.3 if dtype.is_complex else 1.0
    assert ours <= 1.1 * gauss * rms_growth(*[get(name)] * levels) * error((a @ b)[:16], reference)


@pytest.mark.parametrize("name", ["strassen", "winograd"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bit_operands_have_float16_planes(dtype, name):
    a, b = normal(2048, 2048, dtype=dtype), normal(2048, 2048, dtype=dtype, seed=1)
    reference = wide(a) @ wide(b)
    vendor = error(a @ b, reference)
    for factor in (1.0, 2.0**-40 if dtype == torch.bfloat16 else 2.0**-10):
        growth = error(product(a * factor, b, get(name)), reference * factor) / vendor
        # float16 results keep 3 more bits than bfloat16 ones, and show the planes' rounding
        assert growth <= (1.1 if dtype == torch.bfloat16 else 1.1 * rms_growth(get(name)) + 1)


@pytest.mark.parametrize("workspace", [None, 30_000_000, 3_000_000])
@pytest.mark.parametrize("levels", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "bfloat16"])
def test_memory_is_as_stated(dtype, levels, workspace):
    if dtype == "bfloat16" and levels == 3:
        levels = 2
    M, N, K = 1500, 1300, 1400
    scheme = get("strassen")
    a = normal(M, K, dtype=getattr(torch, dtype))
    b = normal(K, N, dtype=getattr(torch, dtype), seed=1)
    out = torch.empty(M, N, dtype=a.dtype, device="cuda")

    def run():
        product(a, b, scheme, levels, out=out, workspace=workspace)

    run()  # cuBLAS takes its own workspace at its first call
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    # requested, not reserved: a block may be up to 1 MiB larger than what was asked for
    before = torch.cuda.memory_stats()["requested_bytes.all.current"]
    run()
    peak = torch.cuda.memory_stats()["requested_bytes.all.peak"] - before
    recipe = recipe_for([scheme] * levels, M, N, K, dtype, workspace=workspace)
    stated = workspace_bytes(M, N, K, dtype, recipe)
    assert stated <= (workspace or peak)
    assert abs(peak - stated) <= 0.01 * stated + 4096


def test_packed_memory_is_as_stated():
    b = normal(2048, 1024, dtype=torch.float32)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    packed = pack(b, get("strassen"), 2)
    torch.cuda.synchronize()
    assert packed.nbytes == pytest.approx(torch.cuda.memory_allocated() - before, rel=0.01)


def test_same_call_same_bits():
    a, b = normal(900, 800, dtype=torch.float32), normal(800, 700, dtype=torch.float32, seed=1)
    first = product(a, b, get("winograd"), 2)
    assert all(torch.equal(product(a, b, get("winograd"), 2), first) for _ in range(5))


def test_side_stream_and_graph():
    a, b = integers(512, 512, dtype=torch.float32), integers(512, 512, dtype=torch.float32, seed=1)
    out = torch.zeros(512, 512, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        product(a, b, get("strassen"), 2, out=out)
    stream.synchronize()
    assert torch.equal(out, a @ b)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        product(a, b, get("strassen"), 2, out=out)
    a.copy_(integers(512, 512, dtype=torch.float32, seed=2))
    graph.replay()
    assert torch.equal(out, a @ b)
    a[0] = 0  # the guard decides anew at each replay
    a[1] = float("nan")
    graph.replay()
    assert out[1].isnan().all()
    assert not out[0].any()


def test_tf32_is_the_user_s_choice():
    a, b = normal(1024, 1024, dtype=torch.float32), normal(1024, 1024, dtype=torch.float32, seed=1)
    reference = wide(a) @ wide(b)
    assert error(product(a, b, get("strassen")), reference) < 1e-5
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        assert error(product(a, b, get("strassen")), reference) > 1e-5
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False
