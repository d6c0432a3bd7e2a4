"""Kernels as they are handed to the driver, without a GPU: the driver is played."""

from types import SimpleNamespace

import pytest
import torch

from tiercel.errors import TiercelRuntimeError
from tiercel.lower.accumulator import accumulate
from tiercel.schemes import get
from tiercel.targets.hopper.config import Config
from tiercel.targets.hopper.fused import product, schedule, tables
from tiercel.targets.hopper.launching import driver
from tiercel.targets.hopper.launching.kernel import Arguments, Kernel
from tiercel.targets.hopper.launching.tensor_map import move_tensor_maps

TOO_LARGE = 720


class Status(int):
    name = "CUDA_ERROR"


class Thread:
    """One that has no context at first: what it asks the driver is answered so."""

    def __init__(self, monkeypatch, fake):
        self.context, self.asked = None, []
        fake.cuDevicePrimaryCtxRetain = lambda device: (Status(0), f"context of {device}")
        fake.cuCtxSetCurrent = self.enter
        monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 3, raising=False)

    def enter(self, context):
        self.context = context
        return (Status(0),)

    def answer(self, *arguments):
        self.asked.append(arguments)
        return (Status(driver.NO_CONTEXT if self.context is None else 0),)


@pytest.fixture
def played(monkeypatch):
    """A driver that keeps what it is asked to launch; ``refuses`` is its answer."""
    fake = SimpleNamespace(launched=[], refuses=0)

    def launch(config, function, arguments, extra):
        fake.launched.append(vars(config) | {"function": function})
        return (Status(fake.refuses),)

    fake.driver = SimpleNamespace(
        cuLibraryLoadData=lambda *_: (0, "library"),
        cuLibraryGetKernel=lambda library, name: (0, 77),
        cuKernelSetAttribute=lambda *_: (0,),
        cuLaunchKernelEx=launch,
        CUfunction=lambda number: number,
        CUlaunchConfig=SimpleNamespace,
        CUlaunchAttribute=lambda: SimpleNamespace(value=SimpleNamespace()),
        CUlaunchAttributeID=SimpleNamespace(
            CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION="overlap",
            CU_LAUNCH_ATTRIBUTE_COOPERATIVE="together",
        ),
        CUfunction_attribute=SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8),
        CUresult=SimpleNamespace(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE=TOO_LARGE),
    )
    monkeypatch.setattr(driver, "bindings", lambda: fake.driver)
    return fake


@pytest.mark.parametrize(
    ("overlap", "cooperative", "attributes"),
    [(False, False, []), (True, False, ["overlap"]), (False, True, ["together"])],
)
def test_attributes_of_a_launch(played, overlap, cooperative, attributes):
    Kernel(b"", 0, 100_000, overlap=overlap, cooperative=cooperative).launch(8, Arguments(b""), 7)
    (launched,) = played.launched
    assert [x.id for x in launched.get("attrs", [])] == attributes
    assert launched.get("numAttrs", 0) == len(attributes)
    assert launched["sharedMemBytes"] == 100_000


def test_a_thread_that_torch_has_given_no_work_gets_a_context(played, monkeypatch):
    calls = {
        "cuLaunchKernelEx": lambda: Kernel(b"", 0, 0).launch(8, Arguments(b""), 7),
        "cuMemsetD32Async": lambda: driver.clear_words(64, 1, 7),
        "cuTensorMapReplaceAddress": lambda: move_tensor_maps([("map", 8)], 64),
    }
    for name, call in calls.items():
        thread = Thread(monkeypatch, played.driver)
        setattr(played.driver, name, thread.answer)
        call()
        assert thread.context == "context of 3"
        assert len(thread.asked) > 1
        assert thread.asked[0] == thread.asked[-1]
        before = len(thread.asked)
        call()
        assert len(thread.asked) == before + 1


def test_grid_and_stream_are_those_of_each_launch(played):
    kernel = Kernel(b"", 0, 0)
    for blocks, stream in ((8, 7), (8, 7), (8, 9), (6, 9)):
        kernel.launch(blocks, Arguments(b""), stream, 128)
        assert played.launched[-1]["gridDimX"] == blocks
        assert played.launched[-1]["hStream"] == stream
        assert played.launched[-1]["blockDimX"] == 128


def test_a_grid_that_cannot_run_at_once_is_refused_with_advice(played):
    kernel = Kernel(b"", 0, 0, cooperative=True)
    played.refuses = TOO_LARGE
    with pytest.raises(TiercelRuntimeError, match=r"132 blocks: .*tiercel\.set_num_sms"):
        kernel.launch(132, Arguments(b""), 7)
    played.refuses = 1
    with pytest.raises(TiercelRuntimeError, match=r"132 blocks: CUDA_ERROR$"):
        kernel.launch(132, Arguments(b""), 7)


@pytest.mark.parametrize("inside", [False, True])
def test_kernels_whose_blocks_wait_for_each_other_start_together(monkeypatch, inside):
    made = []
    monkeypatch.setattr(product, "cubin", lambda text, name: b"")
    monkeypatch.setattr(product, "Kernel", lambda *_, **how: made.append(how))
    lowered = tables.lower(accumulate(get("winograd")), "bfloat16", inside)
    config = Config(schedule.TILE, "bfloat16", "bfloat16", False, False)
    product.kernel.cache_clear()
    product.kernel(config, lowered, "beside" if inside else "before", 0)
    product.kernel.cache_clear()
    assert made == [{"overlap": False, "cooperative": True}]
