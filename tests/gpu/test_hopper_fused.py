"""Schemes fused into the Hopper kernel, judged by exact integers and by the vendor's error."""

import pytest
import torch

from tiercel import schemes
from tiercel.errors import TiercelValueError
from tiercel.lower.accumulator import Cost, accumulate
from tiercel.targets.hopper.fused_product import prepare
from tiercel.targets.hopper.packed import pack

pytestmark = pytest.mark.gpu

SIZES = [(1024, 1024, 512), (1008, 1200, 320), (2064, 784, 1200)]
WINOGRAD = accumulate(schemes.get("winograd"), cost=Cost(registers=1))


def integers(rows: int, columns: int, dtype: torch.dtype, transposed: bool):
    shape = (columns, rows) if transposed else (rows, columns)
    values = torch.randint(-1, 2, shape, device="cuda").to(dtype)
    return values.t() if transposed else values


def product(a, b, inside: bool, program=WINOGRAD):
    """A·B with every byte of output and workspace poisoned before."""
    out = torch.full((a.shape[0], b.shape[1]), float("nan"), device="cuda", dtype=a.dtype)
    work = prepare(a, pack(b, program), out, inside=inside)
    for memory in work.workspace:
        memory.fill_(float("nan"))
    for _ in range(2):  # counters and flag start afresh each time
        work.run(torch.cuda.current_stream().cuda_stream)
    return out


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(
    ("dtype", "a_transposed", "b_transposed"),
    [
        (torch.bfloat16, False, False),
        (torch.bfloat16, False, True),
        (torch.bfloat16, True, False),
        (torch.bfloat16, True, True),
        (torch.float16, False, True),
    ],
)
@pytest.mark.parametrize(("M", "N", "K"), SIZES)
def test_integers_are_exact(M, N, K, a_transposed, b_transposed, dtype, inside):
    a, b = integers(M, K, dtype, a_transposed), integers(K, N, dtype, b_transposed)
    assert torch.equal(product(a, b, inside), (a.float() @ b.float()).to(dtype))


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(("scale_a", "scale_b"), [(1, 1), (30, 1e-3), (0.02, 100)])
def test_error_is_near_the_vendors(inside: bool, scale_a: float, scale_b: float):
    a = (scale_a * torch.randn(2048, 4096, device="cuda")).bfloat16()
    b = (scale_b * torch.randn(4096, 1024, device="cuda")).bfloat16()
    reference = a.double() @ b.double()

    def error(x):
        return ((x.double() - reference).norm() / reference.norm()).item()

    assert error(product(a, b, inside)) <= 1.10 * error(a @ b)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("value", [float("inf"), float("nan"), 1e6])
def test_what_planes_cannot_hold_falls_back(inside: bool, value: float):
    a = torch.randn(1024, 512, device="cuda").bfloat16()
    b = torch.randn(512, 1024, device="cuda").bfloat16()
    a[5, 7] = value
    out, vendor = product(a, b, inside), a @ b
    assert torch.equal(out.isfinite(), vendor.isfinite())
    assert (out[6:].float() - vendor[6:].float()).norm() <= 5e-3 * vendor[6:].float().norm()


def test_refusals():
    with pytest.raises(TiercelValueError, match="not finite"):
        pack(torch.full((512, 512), float("inf"), device="cuda").bfloat16(), WINOGRAD)
    with pytest.raises(TiercelValueError, match="does not divide"):
        pack(torch.ones(511, 512, device="cuda").bfloat16(), WINOGRAD)
