"""The CUDA driver's own calls: errors, contexts, captures. All handles are plain integers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from tiercel.errors import TiercelRuntimeError


@cache
def bindings() -> Any:
    """``cuda.bindings.driver``."""
    from cuda.bindings import driver  # pyright: ignore[reportAttributeAccessIssue]

    return driver


def checked(result: tuple[Any, ...], what: str) -> Any:
    """What the driver answered, or :class:`TiercelRuntimeError`: it refused to do ``what``."""
    status, *values = result
    if int(status) != 0:
        raise TiercelRuntimeError(f"the CUDA driver refused to {what}: {status.name}")
    return values[0] if values else None


#: ``CUDA_ERROR_INVALID_CONTEXT``: this thread has none.
NO_CONTEXT = 201


def in_context(call: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
    """The driver's answer; a thread without a context gets the current device's, and asks again.

    Torch gives a thread its context with the first work of its own, which may come later.
    """
    result = call()
    if int(result[0]) != NO_CONTEXT:
        return result
    import torch

    driver, device = bindings(), torch._C._cuda_getDevice()
    context = checked(driver.cuDevicePrimaryCtxRetain(device), "find a device's context")
    checked(driver.cuCtxSetCurrent(context), "make a context current")
    return call()


def clear_words(address: int, words: int, stream: int) -> None:
    """Enqueue the zeroing of 32-bit words."""
    cleared = in_context(lambda: bindings().cuMemsetD32Async(address, 0, words, stream))
    checked(cleared, "clear flags")


@contextmanager
def allowed_while_capturing() -> Iterator[None]:
    """Let this thread do, while a CUDA graph is captured, what is not part of it: allocate memory,
    and what else libraries do when they begin.
    """
    driver = bindings()
    relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    before = checked(driver.cuThreadExchangeStreamCaptureMode(relaxed), "relax a capture")
    try:
        yield
    finally:
        checked(driver.cuThreadExchangeStreamCaptureMode(before), "restrict a capture again")
