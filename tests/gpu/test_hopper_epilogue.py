"""Traced epilogues in the Hopper kernel, against their float64 reference."""

import math

import numpy as np
import pytest
import torch

import tiercel
from tiercel.bench.trace.report import report
from tiercel.lower.epilogue import library
from tiercel.targets.hopper.epilogues.product import gemm_epilogue
from tiercel.targets.hopper.epilogues.tile import WIDE
from tiercel.targets.hopper.products import heuristic
from tiercel.targets.hopper.tracing.trace import record

pytestmark = pytest.mark.gpu

# A tail in every dimension and tile; 400 and 1040 leave halves of 200 and 520 columns, which no
# span of a stored subtile divides; one row; several tiles of 256 columns.
SHAPES = [(300, 520, 192), (129, 400, 128), (1, 16, 64), (257, 1040, 320)]
HEAD = 16
NAMES = [
    "gelu", "bias", "residual", "swiglu", "geglu", "rope", "rms_statistics", "residual_rms",
    "cross_entropy",
]  # fmt: skip


def tensor(*shape: int, dtype=torch.bfloat16):
    return torch.randn(shape, device="cuda").to(dtype)


def array(x):
    if not isinstance(x, torch.Tensor):
        return x
    return (x.double() if x.is_floating_point() else x).cpu().numpy()


def operands_of(name: str, M: int, N: int):
    return {
        "bias": {"bias": tensor(N)},
        "residual": {"residual": tensor(M, N)},
        "rope": {
            "cos": tensor(M, math.gcd(HEAD // 2, N // 2), dtype=torch.float32),
            "sin": tensor(M, math.gcd(HEAD // 2, N // 2), dtype=torch.float32),
            "rotated": float(N // 2),
        },
        "residual_rms": {"residual": tensor(M, N), "gamma": tensor(N)},
        "cross_entropy": {"target": torch.randint(0, N, (M, 1), device="cuda")},
    }.get(name, {})


def check(got, epilogue, a, b, operands, close: float = 1e-4):
    """``close``: relative error that float32 results may have."""
    acc = (a.double() @ b.double()).cpu().numpy()
    wanted = epilogue.evaluate(acc, {key: array(x) for key, x in operands.items()})
    assert len(wanted) == len(got)
    wanted = wanted if got.keys() == wanted.keys() else dict(zip(got, wanted.values(), strict=True))
    assert got.keys() == wanted.keys()
    for key, value in wanted.items():
        found = got[key].double().cpu().numpy()
        assert found.shape == np.shape(value)
        tolerance = 5e-3 if got[key].dtype == torch.bfloat16 else close
        assert np.linalg.norm(found - value) <= tolerance * np.linalg.norm(value), key


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("tile", heuristic.CANDIDATES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_outputs_match_the_reference(name: str, tile, shape):
    M, N, K = shape
    epilogue, operands = getattr(library, name), operands_of(name, M, N)
    a, b = tensor(M, K), tensor(K, N)
    for _ in range(2):  # counters of arrived tiles are back at 0 for the second launch
        check(gemm_epilogue(a, b, epilogue, operands, config=tile), epilogue, a, b, operands)


@tiercel.epilogue(first="tile", second="tile", bias="row")
def two_operands(acc, first, second, bias):
    """The first is brought by TMA, the second one loaded by threads."""
    return {"out": acc * first + second, "other": acc + bias - first}


# Several tiles for each multiprocessor, products shorter than their epilogue; a batch.
@pytest.mark.parametrize("shape", [(2100, 4096, 320), (4096, 4096, 64), (2, 130, 264, 72)], ids=str)
@pytest.mark.parametrize("tile", [*heuristic.CANDIDATES[:4], WIDE], ids=str)
def test_operands_of_a_tile_are_there_in_time(tile, shape):
    *lead, M, N, K = shape
    a, b = tensor(*lead, M, K), tensor(*lead, N, K).mT
    operands = {"first": tensor(*lead, M, N), "second": tensor(*lead, M, N), "bias": tensor(N)}
    for _ in range(3):
        check(
            gemm_epilogue(a, b, two_operands, operands, config=tile), two_operands, a, b, operands
        )


def test_an_operand_that_the_copy_engine_cannot_address():
    a, b = tensor(200, 128), tensor(128, 256)
    operands = {"residual": tensor(200, 260)[:, 2:-2]}  # a multiple of 4 bytes, not of 16
    check(gemm_epilogue(a, b, library.residual, operands), library.residual, a, b, operands)


def test_nothing_is_written_beside_a_pair_map():
    M, N, K = 100, 400, 128  # 200 columns: three subtiles of 64 and a tail
    a, b = tensor(M, K), tensor(K, N)
    around = torch.full((M + 2, N // 2), float("nan"), device="cuda", dtype=torch.bfloat16)
    for tile in heuristic.CANDIDATES:
        around.fill_(float("nan"))
        gemm_epilogue(a, b, library.swiglu, {}, config=tile, out=around[1:-1])
        assert around[[0, -1]].isnan().all()
        assert not around[1:-1].isnan().any()


def test_row_results_have_the_same_bits_each_time():
    a, b = tensor(500, 256), tensor(256, 4096)
    operands = {"target": torch.randint(0, 4096, (500, 1), device="cuda")}
    first, *others = (
        gemm_epilogue(a, b, library.cross_entropy, operands)["lse"].clone() for _ in range(5)
    )
    assert all(torch.equal(first, other) for other in others)


def test_a_graph_replays_reductions():
    a, b = tensor(256, 256), tensor(256, 512)
    gemm_epilogue(a, b, library.rms_statistics, {})
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = gemm_epilogue(a, b, library.rms_statistics, {})
    for _ in range(3):
        a.normal_()
        graph.replay()
        check(got, library.rms_statistics, a, b, {})


@pytest.mark.parametrize("name", ["swiglu", "residual_rms", "cross_entropy"])
def test_one_kernel_launch(name: str):
    a, b, operands = tensor(512, 512), tensor(512, 512), operands_of(name, 512, 512)
    gemm_epilogue(a, b, getattr(library, name), operands)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        gemm_epilogue(a, b, getattr(library, name), operands)
        torch.cuda.synchronize()
    kernels = [e for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    assert [e.name for e in kernels] == ["gemm"]


@pytest.mark.parametrize("schedule", ["pingpong", "cooperative"])
def test_a_traced_kernel_marks_every_tile(schedule: str):
    tile = next(x for x in heuristic.CANDIDATES if x.schedule == schedule)
    recording = record(tensor(1024, 512), tensor(2048, 512).t(), tile=tile)
    lanes = [
        recording.lane(cta, group) for cta in range(len(recording.marks)) for group in range(3)
    ]
    assert all((np.diff(lane.clock) >= 0).all() for lane in lanes)
    tiles = sum(int(lane.of("done").sum()) for lane in lanes)
    expected = 1024 // tile.m * 2048 // tile.n
    assert tiles == expected * (2 if schedule == "cooperative" else 1)
    found = report(recording)
    assert 0 < found.tensor_busy < 1
    assert 0 < found.multiplying < 1
