"""Compiled kernels: loading one, its argument in memory, and launching it."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

from tiercel.errors import TiercelRuntimeError
from tiercel.targets.hopper.config import THREADS
from tiercel.targets.hopper.launching import driver
from tiercel.targets.hopper.launching.tensor_map import MAP_BYTES


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
        cuda = driver.bindings()
        _code.append(cubin)
        library = cuda.cuLibraryLoadData(cubin, [], [], 0, [], [], 0)
        self._library = driver.checked(library, "load a kernel")
        kernel = driver.checked(
            cuda.cuLibraryGetKernel(self._library, name.encode()), "find a kernel"
        )
        if shared_bytes > 48 * 1024:
            attribute = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            driver.checked(
                cuda.cuKernelSetAttribute(attribute, shared_bytes, kernel, device),
                f"reserve {shared_bytes} bytes of shared memory",
            )
        self._function = cuda.CUfunction(int(kernel))
        self._grid: tuple[int, int, int] | None = None  # blocks, threads and stream in the config
        self._lock = threading.Lock()
        self._launch = cuda.cuLaunchKernelEx
        self._config = config = cuda.CUlaunchConfig()
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
            if status == driver.NO_CONTEXT:
                arguments = config, self._function, params.pointers, 0
                status = driver.in_context(lambda: self._launch(*arguments))[0]
        if status:
            raise LaunchRefused(
                f"the CUDA driver refused to launch a kernel of {blocks} blocks: {status.name}"
                f"{_advice(status)}"
            )


def _advice(status: Any) -> str:
    if status != driver.bindings().CUresult.CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE:
        return ""
    return (
        "; all of them must run at once, and this context has fewer multiprocessors. Tell how many "
        "by tiercel.set_num_sms"
    )


def _cooperative_attribute() -> Any:
    cuda = driver.bindings()
    attribute = cuda.CUlaunchAttribute()
    attribute.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
    attribute.value.cooperative = 1
    return attribute


def _overlap_attribute() -> Any:
    cuda = driver.bindings()
    attribute = cuda.CUlaunchAttribute()
    attribute.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
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
        return driver.bindings().CUtensorMap(_ptr=self._aligned + MAP_BYTES * index)
