"""Products whose arrays lie elsewhere have the arguments of new ones. Without a GPU."""

import ctypes
import math
from types import SimpleNamespace

import pytest
import torch

from tiercel.errors import TiercelValueError
from tiercel.frontends.torch.cuda import call as cuda_call
from tiercel.frontends.torch.cuda import fused as cuda_fused
from tiercel.frontends.torch.cuda import shared
from tiercel.frontends.torch.cuda.refusals import Refusals
from tiercel.lower.accumulator import accumulate
from tiercel.lower.accumulator.combining import Combining
from tiercel.lower.recipe import Guard
from tiercel.schemes import get
from tiercel.targets.hopper.config import Tile
from tiercel.targets.hopper.fused import (
    gains,
    launches,
    packed,
    planes,
    schedule,
    tables,
    verdict,
    workspace,
)
from tiercel.targets.hopper.fused import product as fused_product
from tiercel.targets.hopper.fused.product import prepare
from tiercel.targets.hopper.fused.verdict import Judge
from tiercel.targets.hopper.fused.workspace import Layout, Workspace
from tiercel.targets.hopper.launching import driver
from tiercel.targets.hopper.launching.movable import extent_of
from tiercel.targets.hopper.launching.tensor_map import MAP_BYTES, TensorMap
from tiercel.targets.hopper.operands import operand
from tiercel.targets.hopper.products import launch as plain_launch
from tiercel.targets.hopper.products import product, split, stream_k

PROGRAM = accumulate(get("winograd"))
M, K, N = 1024, 1024, 2048


def tensor_map(*described):
    """Of the address, and of all else."""
    dtype, address, *rest = described
    text = address.to_bytes(8, "little") + repr((dtype, *rest)).encode()
    made = TensorMap(text.ljust(MAP_BYTES))
    made.address = address
    return made


class Descriptor:
    def __init__(self, _ptr):
        self.first = ctypes.c_uint64.from_address(_ptr)


def move(descriptor, address):
    descriptor.first.value = address
    return (0,)


class Kernel:
    """Keeps the arguments that it is launched with."""

    def __init__(self, name, launched):
        self.name, self.launched = name, launched

    def launch(self, blocks, arguments, stream, threads):
        self.launched.append((self.name, blocks, threads, bytes(arguments.words)))


@pytest.fixture
def launched(monkeypatch):
    """What was launched, with its argument."""
    found = []
    for module, name in (
        (planes, "_kernel"), (verdict, "_kernel"), (fused_product, "kernel"),
        (plain_launch, "kernel"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, lambda *key: Kernel(repr(key[:-1]), found))
    for module in (schedule, verdict, product, plain_launch):
        monkeypatch.setattr(module, "multiprocessors", lambda device: 132)
    fake = SimpleNamespace(CUtensorMap=Descriptor, cuTensorMapReplaceAddress=move)
    monkeypatch.setattr(driver, "bindings", lambda: fake)
    for module in (workspace, launches):
        monkeypatch.setattr(module, "clear_words", lambda *where: found.append(("clear", where)))
    monkeypatch.setattr(operand, "tensor_map", tensor_map)
    monkeypatch.setattr(cuda_call, "raw_stream", lambda device: 7)
    monkeypatch.setattr(cuda_fused, "capturing", lambda: False)
    monkeypatch.setattr(Refusals, "due", lambda self: False)
    monkeypatch.setattr(gains, "lasting", lambda words, device: torch.zeros(words))
    return found


WAYS = (
    Combining(),
    Combining("beside", split=1),
    Combining("first", clusters=8, split=1, early=2),
    Combining("both", clusters=8, split=1, sixteenths=8),
)


@pytest.fixture(params=WAYS, ids=lambda how: how.where)
def way(request, monkeypatch):
    """Where planes are combined."""
    monkeypatch.setattr(schedule, "choose", lambda *_, **__: request.param)


@pytest.fixture
def memories(monkeypatch):
    """Workspaces as they are allocated."""
    found = []

    def allocate(self, like):
        found.append(like.new_empty(self.offsets[-1], dtype=torch.uint8))
        return found[-1]

    monkeypatch.setattr(Layout, "allocate", allocate)
    return found


def matrix(rows, columns):
    return torch.ones(rows, columns, dtype=torch.bfloat16)


def judge(record):
    return Judge(Guard(16.0, math.inf), (0.0, 0.0), record)


def packed_weight(columns=N):
    b = matrix(columns, K).t()
    planes_of_b = torch.empty(4 * columns * K, dtype=torch.float16)  # more than enough
    right = packed.PackedOperand(b, tables.lower(PROGRAM, "bfloat16"), planes_of_b, 1.0)
    record = torch.zeros(3, dtype=torch.int32)
    return cuda_fused.FusedWeight(cuda_fused.Static(right, judge(record)))


def layout_of(weight):
    """Of the workspace that its only call wants."""
    (call,) = weight._calls.values()
    return call._layout


def prepared_anew(launched, weight, a, right, out, arrays, combining=None):
    """The launches of a product that is prepared for these arrays."""
    launched.clear()
    more = {"judge": weight.static.judge, "program": PROGRAM, "combining": combining}
    (call,) = weight._calls.values()
    more["gains"] = call._prepare.args[-1]
    return prepare(a, right, out, memory=Workspace(*arrays), **more)


def test_the_extent_of_an_array():
    x = torch.empty(4, 8)
    assert extent_of(x[:, :3]) == (x.data_ptr(), 4 * (3 * 8 + 3))
    assert extent_of(x.t()) == (x.data_ptr(), 4 * 32)
    assert extent_of(x[:0]).size == 0


@pytest.mark.usefixtures("way")
def test_a_packed_weight(launched, memories):
    weight = packed_weight()
    weight.multiply(matrix(M, K), matrix(M, N))
    layout = layout_of(weight)
    for _ in range(2):
        a, out = matrix(M, K), matrix(M, N)
        launched.clear()
        weight.multiply(a, out)
        moved = list(launched)
        assert moved[0][0] == "clear"
        assert len(moved) <= 3, "planes by a kernel of their own at most"
        arrays, right = layout.arrays(memories[-1]), weight.static.operand
        prepared_anew(launched, weight, a, right, out, arrays).run(7)
        assert launched == moved
    assert len(weight._calls) == 1


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("same", [False, True])
def test_two_dynamic_operands(launched, memories, same):
    weight = cuda_fused.FusedWeight(cuda_fused.Static(None, judge(None)), PROGRAM)

    def operands():
        a = matrix(N, K)
        return a, a.t() if same else matrix(N, K).t(), matrix(N, N)

    a, b, out = operands()
    weight.multiply(a, out, b=b)
    layout = layout_of(weight)
    for _ in range(2):
        a, b, out = operands()
        launched.clear()
        weight.multiply(a, out, b=b)
        moved = list(launched)
        prepared_anew(launched, weight, a, b, out, layout.arrays(memories[-1])).run(7)
        assert launched == moved
    assert len(weight._calls) == 1


def test_arrays_that_overlapped_at_first(launched, memories):
    weight = cuda_fused.FusedWeight(cuda_fused.Static(None, judge(None)), PROGRAM)
    out, same = matrix(N, N), matrix(N, K)
    weight.multiply(same, out, b=same.t())
    layout = layout_of(weight)
    for a, b in ((same, same.t()), (matrix(N, K), matrix(N, K).t()), (matrix(N, K), same.t())):
        launched.clear()
        weight.multiply(a, out, b=b)
        moved = list(launched)
        prepared_anew(launched, weight, a, b, out, layout.arrays(memories[-1])).run(7)
        assert launched == moved


def test_planes_of_another_product(launched, memories, monkeypatch):
    monkeypatch.setattr(shared, "_last", {})
    monkeypatch.setattr(shared, "capturing", lambda: False)
    second = packed_weight()
    for columns in (N, N, 4 * N, N):  # the others' workspaces are not all of one layout
        first = packed_weight(columns)
        for weight, width in ((first, columns), (second, N)):
            weight.multiply(matrix(M, K), matrix(M, width))
        a, out = matrix(M, K), matrix(M, N)
        first.multiply(a, matrix(M, columns), tracked=True)
        launched.clear()
        second.multiply(a, out, tracked=True)
        moved = list(launched)
        arrays = layout_of(second).without_planes.arrays(memories[-1])
        kept = shared._last[-1]
        arrays[0], arrays[-1] = kept.array(0), kept.array(-1)
        right = second.static.operand
        made = prepared_anew(launched, second, a, right, out, arrays, Combining())
        kept.layout.clear_flags(kept.memory, 7, workspace.FRESH)
        made.multiply.run(7)
        assert launched == moved


@pytest.fixture
def played(launched, monkeypatch):
    """The plain kernel for tensors that are nowhere."""
    monkeypatch.setattr(product, "check_devices", lambda named: None)
    monkeypatch.setattr(product, "run", lambda ready, a, stream: ready.run(stream))
    monkeypatch.setattr(product, "_ready", {})
    split_kernel = Kernel("sum", launched)
    monkeypatch.setattr(split, "_kernel", lambda dtype, device: split_kernel)
    return launched


@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("width", [N, N - 3])
def test_the_plain_kernel(played, monkeypatch, parts, flipped, width):
    tile = Tile(128, 256, 4, "cooperative", cluster_m=2)

    def choice(a, b, out):
        chosen.append(tile)
        return tile, (parts, *out.shape) if parts > 1 else None

    def allocate(like, shape):
        works.append(torch.empty(shape))
        return works[-1]

    works, chosen = [None], []
    monkeypatch.setattr(product, "_choice", choice)
    monkeypatch.setattr(product, "_sums", allocate)
    for _ in range(3):
        a, b = matrix(M, K), matrix(K, N)[:, :width]
        out = matrix(width, M).t() if flipped and parts == 1 else matrix(M, width)
        played.clear()
        product.gemm(a, b, out=out)
        moved = list(played)
        assert len(moved) == (2 if parts > 1 else 1)
        played.clear()
        product._prepared(a, b, out, None, works[-1], 1.0, 0.0, tile, True).run(7)
        assert played == moved
    assert len(product._ready) == len(chosen) == 1


def test_other_layouts_are_other_launches(played, monkeypatch):
    tile = Tile(128, 256, 4, "cooperative", cluster_m=2)
    monkeypatch.setattr(product, "_choice", lambda a, b, out: (tile, None))
    a, b = matrix(M, K), matrix(K, N)
    wide, half = matrix(M, 2 * K)[:, :K], matrix(M, K).half()
    odd = torch.ones(M * N + 4, dtype=torch.bfloat16)[4:].view(M, N)  # 8 bytes behind
    for number, (left, right, out) in enumerate(
        (
            (a, b, None),
            (wide, b, None),
            (a, matrix(N, K).t(), None),
            (a[: M // 2], b, None),
            (half, b.half(), None),
            (a, b, torch.ones(M, N)),
            (a, b, odd),
        )
    ):
        for _ in range(2):
            product.gemm(left, right, out=out)
            assert len(product._ready) == number + 1
    with pytest.raises(TiercelValueError, match="multiple of 16"):
        product.gemm(odd[:, :K], b)


def test_a_sum_of_products_in_place_and_elsewhere(played):
    a, b = matrix(M, K), matrix(K, N)
    for _ in range(2):
        c, out = matrix(M, N), matrix(M, N)
        for summand in (out, c, out):
            played.clear()
            product.gemm(a, b, out=out, beta=1.0, c=summand)
            moved = list(played)
            played.clear()
            product._prepared(a, b, out, summand, None, 1.0, 1.0, None, True).run(7)
            assert played == moved


def test_a_kernel_whose_last_turn_is_shared(played, monkeypatch):
    memory = {7: torch.zeros(8), 9: torch.zeros(8)}
    monkeypatch.setattr(
        stream_k, "_memory", lambda device, stream, blocks, capturing: memory[stream]
    )
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    tile = Tile(128, 256, 4, "cooperative", cluster_m=2)
    monkeypatch.setattr(product, "_choice", lambda a, b, out: (tile, None))
    for stream in (7, 9, 7):
        monkeypatch.setattr(product, "run", lambda ready, a, _, stream=stream: ready.run(stream))
        a, b, out = matrix(4096, 4096), matrix(4096, 1280), matrix(4096, 1280)
        played.clear()
        product.gemm(a, b, out=out)
        moved = list(played)
        played.clear()
        anew = product._prepared(a, b, out, None, None, 1.0, 0.0, tile, True)
        assert isinstance(anew, stream_k.SharedLaunch)
        anew.run(stream)
        assert played == moved
        assert memory[stream].data_ptr().to_bytes(8, "little") in moved[0][-1]
    assert len(product._ready) == 1


def test_gradients_of_a_kind_have_gains_of_their_own(launched, monkeypatch):
    weight = packed_weight()
    weight.multiply(matrix(2 * M, K), matrix(2 * M, N))
    monkeypatch.setattr(cuda_fused, "_in_backward", lambda: True)
    for rows in (M, 2 * M, M):
        weight.multiply(matrix(rows, K), matrix(rows, N))
    torch.use_deterministic_algorithms(True)
    try:
        weight.multiply(matrix(M, K), matrix(M, N))
    finally:
        torch.use_deterministic_algorithms(False)
    before, first, second, without = (call._prepare.args[-1] for call in weight._calls.values())
    assert before is None
    assert first.tolist() == second.tolist() == [1, 1]
    assert first.data_ptr() != second.data_ptr()
    assert without is None
