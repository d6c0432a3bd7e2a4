"""Epilogues inside a scheme's kernel, against their float64 reference, in one launch."""

import math
from dataclasses import replace

import pytest
import torch

import tiercel
from tests.gpu.test_hopper_epilogue import check, operands_of, tensor
from tiercel import schemes
from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.lower.accumulator import accumulate
from tiercel.lower.accumulator.combining import Combining
from tiercel.lower.epilogue import library
from tiercel.lower.recipe import Guard
from tiercel.targets.gpu.verdict import record_of
from tiercel.targets.hopper import gemm_epilogue
from tiercel.targets.hopper.epilogues.fused import fused_epilogue
from tiercel.targets.hopper.fused.packed import pack
from tiercel.targets.hopper.fused.verdict import Judge

pytestmark = pytest.mark.gpu

# Blocks with tails of rows and columns and few k-tiles, and whole ones with many.
SHAPES = [(2080, 1664, 1200), (1024, 2048, 4096)]
WAYS = {
    "before": Combining(),
    "beside, heads ahead": Combining("beside", split=2),
    "first turn, heads ahead": Combining("first", 2, split=1),
}
NAMES = ["gelu", "bias", "swiglu", "rope", "residual_rms", "cross_entropy"]
BESIDE = Combining("beside")


def packed(b, name="winograd"):
    return pack(b, accumulate(schemes.get(name)))


def judge(b, limit=1e30):
    """Of a weight b (K, N) that is packed: of its own scales, and of those of A."""
    return Judge(Guard(limit, 1e30), (0.0, 0.0), record=record_of(b, along_rows=False))


def check_outputs(name: str, M: int, N: int, K: int, combining: Combining, scheme="winograd"):
    epilogue, operands = getattr(library, name), operands_of(name, M, N)
    a, b = tensor(M, K), (tensor(N, K) / K**0.5).t()
    weight, judged = packed(b, scheme), judge(b)
    first = None
    for _ in range(3):  # counters are back at 0 each time
        got = fused_epilogue(a, weight, epilogue, operands, combining=combining, judge=judged)
        check(got, epilogue, a, b, operands, close=1e-3)  # of a logit: planes have 11 bits
        first = got if first is None else first
        assert all(torch.equal(got[x], first[x]) for x in got)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_outputs_match_the_reference(name: str, shape):
    check_outputs(name, *shape, BESIDE)


@pytest.mark.parametrize("combining", WAYS.values(), ids=list(WAYS))
@pytest.mark.parametrize("name", ["swiglu", "residual_rms"])
def test_however_planes_are_combined(name: str, combining: Combining):
    check_outputs(name, *SHAPES[1], combining)


@pytest.mark.parametrize(
    ("name", "scheme"),
    [("residual_rms", "strassen"), ("swiglu", "laderman"), ("residual_rms", "lean-4x2x4")],
)
def test_other_schemes(name: str, scheme: str):
    grid = schemes.get(scheme)
    check_outputs(name, 272 * grid.m, 528 * grid.n, 512 * grid.k, BESIDE, scheme)


# What is kept of a block has 11 bits, more than a bfloat16 product. With float16 planes of float16
# operands Winograd's scheme has 2.65 times the error of a classical product.
@pytest.mark.parametrize(("dtype", "most"), [(torch.bfloat16, 1.1), (torch.float16, 4)])
@pytest.mark.parametrize("scale", [1e-3, 1, 100])
def test_error_is_like_that_of_a_rounded_product(dtype: torch.dtype, most: float, scale: float):
    M, N, K = 1024, 1024, 2048
    a, b = scale * torch.randn(M, K, device="cuda"), torch.randn(K, N, device="cuda") / K**0.5
    a, b, residual = a.to(dtype), b.to(dtype), tensor(M, N, dtype=dtype)
    exact = a.double() @ b.double() + residual.double()

    def error(x):
        return (x.double() - exact).norm() / exact.norm()

    operands = {"residual": residual}
    made = fused_epilogue(a, packed(b), library.residual, operands, combining=BESIDE)
    got = made["out"]
    assert error(got) <= most * error((a @ b) + residual)


@pytest.mark.parametrize("combining", [Combining(), BESIDE], ids=["before", "beside"])
@pytest.mark.parametrize("name", ["residual_rms", "cross_entropy"])
@pytest.mark.parametrize("value", [float("inf"), float("nan"), 1e6])
def test_what_planes_cannot_hold_is_multiplied_classically(name: str, value: float, combining):
    M, N, K = 1056, 1088, 528
    epilogue, operands = getattr(library, name), operands_of(name, M, N)
    a, b = tensor(M, K), tensor(N, K).t()
    a[5, 7] = value
    got = fused_epilogue(a, packed(b), epilogue, operands, combining=combining, judge=judge(b))
    wanted = gemm_epilogue(a, b, epilogue, operands)
    for key, x in wanted.items():
        assert torch.equal(got[key].isfinite(), x.isfinite()), key
        torch.testing.assert_close(got[key], x, rtol=1e-2, atol=1e-2, equal_nan=True)


@pytest.mark.parametrize("combining", WAYS.values(), ids=list(WAYS))
@pytest.mark.parametrize("value", [1.0, float("inf")], ids=["wanted", "refused"])
def test_idle_warps_complete_the_rows_of_many_tiles(combining: Combining, value: float):
    # 4 thread blocks of at least 9 tiles each, whose blocks wait for warps that combine planes; and
    # all of that twice where the result is refused.
    M, N, K = 1024, 4608, 1024
    epilogue, operands = library.cross_entropy, operands_of("cross_entropy", M, N)
    a, b = tensor(M, K), (tensor(N, K) / K**0.5).t()
    a[5, 7] = value
    weight, judged = packed(b), judge(b)
    wanted = gemm_epilogue(a, b, epilogue, operands)
    try:
        tiercel.set_num_sms(4)
        for _ in range(3):
            got = fused_epilogue(a, weight, epilogue, operands, combining=combining, judge=judged)
            for key, x in wanted.items():
                torch.testing.assert_close(got[key], x, rtol=1e-2, atol=2e-2, equal_nan=True)
    finally:
        tiercel.set_num_sms(None)


def test_the_guard_keeps_small_rows_accurate():
    M, N, K = 1024, 1024, 1024
    a, b = tensor(M, K), tensor(N, K).t()
    a[512:] *= 1e-6
    exact = torch.nn.functional.gelu(a.double() @ b.double())[512:]

    def error(limit: float):
        got = fused_epilogue(
            a, packed(b), library.gelu, {}, combining=BESIDE, judge=judge(b, limit)
        )
        return (got["out"][512:].double() - exact).norm() / exact.norm()

    assert error(100.0) <= 5e-3 < error(math.inf)


def test_a_weight_that_changed_is_read_anew():
    a, b = tensor(1024, 1024), tensor(1024, 1024).t()
    weight, places = packed(b), torch.tensor([3, 70], device="cuda")
    stored = b.t().flatten()
    judged = replace(judge(b), samples=(places, stored[places].clone()))
    for change in (0, 2):
        b[70, 0] += change  # the element at place 70
        made = fused_epilogue(a, weight, library.gelu, {}, combining=BESIDE, judge=judged)
        got, wanted = made["out"], torch.nn.functional.gelu(a.double() @ b.double())
        assert (got.double() - wanted).norm() <= 5e-3 * wanted.norm()


@pytest.mark.parametrize("name", NAMES)
def test_one_kernel_launch(name: str):
    M, N, K = 1024, 1024, 1024
    a, b, operands = tensor(M, K), tensor(N, K).t(), operands_of(name, M, N)
    weight, epilogue, judged = packed(b), getattr(library, name), judge(b)

    def call():
        fused_epilogue(a, weight, epilogue, operands, combining=BESIDE, judge=judged)

    call()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call()
        torch.cuda.synchronize()
    events = [e for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    assert [e.name for e in events if "Mem" not in e.name] == ["gemm"]


def test_refusals():
    a, weight = tensor(1000, 512), packed(tensor(512, 512).t())
    with pytest.raises(TiercelValueError, match="multiple of 32"):
        fused_epilogue(a, weight, library.rms_statistics, {})
    with pytest.raises(TiercelTypeError, match="16-bit"):
        fused_epilogue(a.float(), weight, library.gelu, {})
