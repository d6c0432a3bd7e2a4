"""Products that repeat with other arrays: their launches are moved there, and still exact."""

import pytest
import torch

from tests.gpu.test_hopper_gemm import exact, integers
from tiercel import schemes
from tiercel.lower.accumulator import accumulate
from tiercel.lower.epilogue import library
from tiercel.targets.hopper import gemm, pack
from tiercel.targets.hopper.epilogues import fused
from tiercel.targets.hopper.epilogues import product as product_epilogue
from tiercel.targets.hopper.products import product

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(("M", "N", "K"), [(300, 712, 200), (64, 256, 4096), (33, 57, 129)])
@pytest.mark.parametrize("flipped", [False, True])
def test_new_operands_and_results(M, N, K, flipped):
    kept, before = [], None
    for _ in range(4):
        a = integers(M, K, torch.bfloat16, False)
        b = integers(K, N, torch.bfloat16, True)
        out = torch.empty(N, M, device="cuda").t() if flipped else torch.empty(M, N, device="cuda")
        kept.append((a, b, gemm(a, b, out=out)))
        before = before or len(product._ready)
    assert len(product._ready) == before, "one launch serves all"
    for a, b, found in kept:
        assert torch.equal(found, exact(a, b, torch.float32))


def test_operands_that_are_one_array_at_first():
    kept = []
    for i in range(3):
        a = integers(256, 256, torch.bfloat16, False)
        b = a if i == 0 else integers(256, 256, torch.bfloat16, False)
        kept.append((a, b, gemm(a, b)))
    for a, b, found in kept:
        assert torch.equal(found, exact(a, b, torch.bfloat16))


def test_a_sum_in_place_and_elsewhere():
    a, b = integers(128, 64, torch.bfloat16, False), integers(64, 256, torch.bfloat16, False)
    for _ in range(2):
        first, second = (integers(128, 256, torch.bfloat16, False).float() for _ in range(2))
        expected = exact(a, b, torch.float32) + first
        assert torch.equal(gemm(a, b, out=second, beta=1.0, c=first), expected)
        assert torch.equal(gemm(a, b, out=first, beta=1.0, c=first), expected)


def test_a_captured_product_keeps_its_arrays():
    a, b = integers(256, 128, torch.bfloat16, False), integers(128, 256, torch.bfloat16, False)
    out = torch.empty(256, 256, device="cuda", dtype=torch.bfloat16)
    gemm(a, b, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        gemm(a, b, out=out)
    other = integers(256, 128, torch.bfloat16, False)
    found = gemm(other, b)
    out.zero_()
    graph.replay()
    assert torch.equal(out, exact(a, b, torch.bfloat16))
    assert torch.equal(found, exact(other, b, torch.bfloat16))


def residual(M, N):
    return {"residual": integers(M, N, torch.bfloat16, False)}


@pytest.mark.parametrize(("M", "N", "K"), [(320, 512, 200), (33, 64, 128)])
def test_an_epilogues_operands_and_results(M, N, K):
    kept, before = [], None
    for _ in range(4):
        a, b = integers(M, K, torch.bfloat16, False), integers(K, N, torch.bfloat16, True)
        operands = residual(M, N)
        found = product_epilogue.gemm_epilogue(a, b, library.residual, operands)
        kept.append((a, b, operands["residual"], found["out"]))
        before = before or len(product_epilogue._ready)
    assert len(product_epilogue._ready) == before, "one launch serves all"
    for a, b, added, found in kept:
        assert torch.equal(found, (exact(a, b, torch.float32) + added).bfloat16())


def test_an_epilogue_inside_a_scheme():
    b, kept = integers(512, 1024, torch.bfloat16, True).sign(), []
    packed = pack(b, accumulate(schemes.get("winograd")))
    for _ in range(4):
        a, operands = integers(768, 512, torch.bfloat16, False).sign(), residual(768, 1024)
        found = fused.fused_epilogue(a, packed, library.residual, operands)
        kept.append((a, operands["residual"], found["out"]))
    assert len(fused.kept_of(packed).ready) == 1, "one launch serves all"
    for a, added, found in kept:
        assert torch.equal(found, (exact(a, b, torch.float32) + added).bfloat16())
