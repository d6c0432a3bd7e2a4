"""The CUDA driver: loading machine code, tensor maps, launches. All handles are plain integers."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any

from tiercel.errors import TiercelRuntimeError
from tiercel.targets.hopper.config import ITEM_BYTES, THREADS

#: Of a tensor map.
MAP_BYTES = 128


@cache
def _driver() -> Any:
    from cuda.bindings import driver  # pyright: ignore[reportAttributeAccessIssue]

    return driver


def _checked(result: tuple[Any, ...], what: str) -> Any:
    status, *values = result
    if int(status) != 0:
        raise TiercelRuntimeError(f"the CUDA driver refused to {what}: {status.name}")
    return values[0] if values else None


#: ``CUDA_ERROR_INVALID_CONTEXT``: this thread has none.
NO_CONTEXT = 201


def _in_context(call: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
    """The driver's answer; a thread without a context gets the current device's, and asks again.

    Torch gives a thread its context with the first work of its own, which may come later.
    """
    result = call()
    if int(result[0]) != NO_CONTEXT:
        return result
    import torch

    driver, device = _driver(), torch._C._cuda_getDevice()
    context = _checked(driver.cuDevicePrimaryCtxRetain(device), "find a device's context")
    _checked(driver.cuCtxSetCurrent(context), "make a context current")
    return call()


class LaunchRefused(TiercelRuntimeError):
    """The driver does not launch a kernel, such as one whose blocks cannot all run at once here."""


#: Machine code that is loaded: libraries refer to it, and are not unloaded.
_code: list[bytes] = []


class Kernel:
    """A loaded kernel. ``launch`` costs a few microseconds of host time.

    ``overlap``: it may start while the previous kernel of the stream ends, and waits for it itself
    (``griddepcontrol.wait``). ``cooperative``: its thread blocks wait for each other, and must all
    run at once: the driver starts them together, and refuses a grid that is too large for that.
    """

    def __init__(
        self,
        cubin: bytes,
        device: int,
        shared_bytes: int,
        name: str = "gemm",
        overlap: bool = True,
        cooperative: bool = False,
    ) -> None:
        driver = _driver()
        _code.append(cubin)
        library = driver.cuLibraryLoadData(cubin, [], [], 0, [], [], 0)
        self._library = _checked(library, "load a kernel")
        kernel = _checked(driver.cuLibraryGetKernel(self._library, name.encode()), "find a kernel")
        if shared_bytes > 48 * 1024:
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            _checked(
                driver.cuKernelSetAttribute(attribute, shared_bytes, kernel, device),
                f"reserve {shared_bytes} bytes of shared memory",
            )
        self._function = driver.CUfunction(int(kernel))
        self._grid: tuple[int, int, int] | None = None  # blocks, threads and stream in the config
        self._lock = threading.Lock()
        self._launch = driver.cuLaunchKernelEx
        self._config = config = driver.CUlaunchConfig()
        config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1
        config.sharedMemBytes = shared_bytes
        attributes = [_overlap_attribute()] if overlap else []
        attributes += [_cooperative_attribute()] if cooperative else []
        if attributes:
            config.attrs, config.numAttrs = attributes, len(attributes)

    def launch(self, blocks: int, params: Arguments, stream: int, threads: int = THREADS) -> None:
        """Enqueue the kernel on a stream of the current device. May raise ``LaunchRefused``."""
        config, grid = self._config, (blocks, threads, stream)
        with self._lock:  # another thread may launch the same kernel
            if grid != self._grid:
                config.gridDimX, config.blockDimX, config.hStream = grid
                self._grid = grid
            status = self._launch(config, self._function, params.pointers, 0)[0]
            if status == NO_CONTEXT:
                arguments = config, self._function, params.pointers, 0
                status = _in_context(lambda: self._launch(*arguments))[0]
        if status:
            raise LaunchRefused(
                f"the CUDA driver refused to launch a kernel of {blocks} blocks: {status.name}"
                f"{_advice(status)}"
            )


def _advice(status: Any) -> str:
    if status != _driver().CUresult.CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE:
        return ""
    return (
        "; all of them must run at once, and this context has fewer multiprocessors. Tell how many "
        "by tiercel.set_num_sms"
    )


def _cooperative_attribute() -> Any:
    driver = _driver()
    attribute = driver.CUlaunchAttribute()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
    attribute.value.cooperative = 1
    return attribute


def _overlap_attribute() -> Any:
    driver = _driver()
    attribute = driver.CUlaunchAttribute()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    attribute.value.programmaticStreamSerializationAllowed = 1
    return attribute


class Arguments:
    """One struct argument by value, aligned as CUDA wants it (64 bytes for tensor maps).

    ``words``: the argument as integers of 64 bits, which may be changed between launches.
    """

    def __init__(self, content: bytes) -> None:
        self._buffer = ctypes.create_string_buffer(len(content) + 64)
        address = ctypes.addressof(self._buffer)
        self._aligned = (address + 63) // 64 * 64
        ctypes.memmove(self._aligned, content, len(content))
        self._array = (ctypes.c_void_p * 1)(self._aligned)
        self.pointers = ctypes.addressof(self._array)
        self.words = (ctypes.c_uint64 * (len(content) // 8)).from_address(self._aligned)

    def tensor_map(self, index: int) -> Any:
        """The driver's view of one of the descriptors that the argument begins with."""
        return _driver().CUtensorMap(_ptr=self._aligned + MAP_BYTES * index)


def clear_words(address: int, words: int, stream: int) -> None:
    """Enqueue the zeroing of 32-bit words."""
    cleared = _in_context(lambda: _driver().cuMemsetD32Async(address, 0, words, stream))
    _checked(cleared, "clear flags")


def capture_id(stream: int) -> int:
    """The number of the capture that a stream is in: unique in a process."""
    return int(_driver().cuStreamGetCaptureInfo(stream)[2])


class TensorMap(bytes):
    """The descriptor of an array for TMA, and the address that it was made for."""

    address: int


def move_tensor_maps(descriptors: Iterable[tuple[Any, int]], address: int) -> None:
    """Let descriptors (``Arguments.tensor_map``) describe the same parts of an array at another
    address, each behind that by the bytes given.
    """
    replace = _driver().cuTensorMapReplaceAddress
    for descriptor, offset in descriptors:
        status = replace(descriptor, address + offset)[0]
        if status == NO_CONTEXT:
            place = descriptor, address + offset
            status = _in_context(lambda place=place: replace(*place))[0]
        if status:
            raise TiercelRuntimeError(
                f"the CUDA driver refused to move a tensor map to {address + offset:#x}: "
                f"{status.name}"
            )


@lru_cache(maxsize=4096)
def tensor_map(
    dtype: str,
    address: int,
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    box: tuple[int, ...],
) -> TensorMap:
    """128-byte descriptor of an array (contiguous dimension first) and a box of it.

    ``strides`` of all dimensions but the first in bytes, multiples of 16; the innermost side of
    the box is 128 or 64 bytes, swizzled. Elements outside read as zero and are not written.
    """
    driver = _driver()
    types = driver.CUtensorMapDataType
    kind = {
        "bfloat16": types.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        "float16": types.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        "float32": types.CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        "tf32": types.CU_TENSOR_MAP_DATA_TYPE_TFLOAT32,  # rounded while loading
        "float8_e4m3fn": types.CU_TENSOR_MAP_DATA_TYPE_UINT8,
        "float8_e5m2": types.CU_TENSOR_MAP_DATA_TYPE_UINT8,
    }[dtype]
    swizzles = driver.CUtensorMapSwizzle
    wide = box[0] * ITEM_BYTES["float32" if dtype == "tf32" else dtype] == 128
    facts = (
        kind,
        len(sizes),
        address,
        [driver.cuuint64_t(size) for size in sizes],
        [driver.cuuint64_t(stride) for stride in strides],
        [driver.cuuint32_t(side) for side in box],
        [driver.cuuint32_t(1)] * len(sizes),
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        swizzles.CU_TENSOR_MAP_SWIZZLE_128B if wide else swizzles.CU_TENSOR_MAP_SWIZZLE_64B,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    made = _in_context(lambda: driver.cuTensorMapEncodeTiled(*facts))
    result = _checked(made, f"describe an array of sizes {sizes}, strides {strides} bytes to TMA")
    described = TensorMap(ctypes.string_at(result.getPtr(), MAP_BYTES))
    described.address = address
    return described


#: What ``occupancy.set_num_sms`` leaves to the kernels; None: all.
most_multiprocessors: int | None = None


def multiprocessors(device: int) -> int:
    """Streaming multiprocessors of a device that may be used: one persistent CTA each."""
    count = _multiprocessors(device)
    return count if most_multiprocessors is None else min(count, most_multiprocessors)


@cache
def _multiprocessors(device: int) -> int:
    driver = _driver()
    attribute = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
    return _checked(driver.cuDeviceGetAttribute(attribute, device), "count multiprocessors")


@contextmanager
def allowed_while_capturing() -> Iterator[None]:
    """Let this thread do, while a CUDA graph is captured, what is not part of it: allocate memory,
    and what else libraries do when they begin.
    """
    driver = _driver()
    relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    before = _checked(driver.cuThreadExchangeStreamCaptureMode(relaxed), "relax a capture")
    try:
        yield
    finally:
        _checked(driver.cuThreadExchangeStreamCaptureMode(before), "restrict a capture again")
