"""Traced epilogues in the Hopper kernel, against their float64 reference."""

import numpy as np
import pytest
import torch

from tiercel.lower.epilogue import library
from tiercel.targets.hopper import heuristic
from tiercel.targets.hopper.product_epilogue import gemm_epilogue

pytestmark = pytest.mark.gpu

M, N, K = 300, 520, 192


def tensor(*shape: int, dtype=torch.bfloat16):
    return torch.randn(shape, device="cuda").to(dtype)


def array(x: torch.Tensor) -> np.ndarray:
    return (x.double() if x.is_floating_point() else x).cpu().numpy()


def cases():
    """Name → operands."""
    return {
        "gelu": {},
        "bias": {"bias": tensor(N)},
        "residual": {"residual": tensor(M, N)},
        "swiglu": {},
        "residual_rms": {"residual": tensor(M, N), "gamma": tensor(N)},
        "cross_entropy": {"target": torch.randint(0, N, (M, 1), device="cuda", dtype=torch.int32)},
    }


@pytest.mark.parametrize("tile", heuristic.CANDIDATES[:2], ids=str)
@pytest.mark.parametrize(
    "name", ["gelu", "bias", "residual", "swiglu", "residual_rms", "cross_entropy"]
)
def test_outputs_match_the_reference(name: str, tile):
    epilogue, operands = getattr(library, name), cases()[name]
    a, b = tensor(M, K), tensor(K, N)
    got = gemm_epilogue(a, b, epilogue, operands, config=tile)
    acc = (a.double() @ b.double()).cpu().numpy()
    wanted = epilogue.evaluate(acc, {key: array(x) for key, x in operands.items()})
    assert len(wanted) == len(got)
    wanted = wanted if got.keys() == wanted.keys() else dict(zip(got, wanted.values(), strict=True))
    assert got.keys() == wanted.keys()
    for key, value in wanted.items():
        found = got[key].double().cpu().numpy()
        assert found.shape == np.shape(value)
        tolerance = 5e-3 if got[key].dtype == torch.bfloat16 else 1e-4
        assert np.linalg.norm(found - value) <= tolerance * np.linalg.norm(value), key


def test_one_kernel_launch():
    a, b = tensor(512, 512), tensor(512, 512)
    gemm_epilogue(a, b, library.swiglu, {})
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        gemm_epilogue(a, b, library.swiglu, {})
        torch.cuda.synchronize()
    kernels = [e for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    assert [e.name for e in kernels if "mem" not in e.name.lower()] == ["gemm"]
