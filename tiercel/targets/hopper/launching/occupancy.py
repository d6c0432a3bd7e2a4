"""How many multiprocessors the kernels occupy: all, or fewer, to leave room for communication."""

from __future__ import annotations

from functools import cache

from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.targets.hopper.launching import driver, launch

#: The largest cluster of thread blocks: they run on as many multiprocessors at once.
LEAST = 2

#: What ``set_num_sms`` leaves to the kernels; None: all.
most_multiprocessors: int | None = None


def multiprocessors(device: int) -> int:
    """Streaming multiprocessors of a device that may be used: one persistent CTA each."""
    count = _multiprocessors(device)
    return count if most_multiprocessors is None else min(count, most_multiprocessors)


@cache
def _multiprocessors(device: int) -> int:
    cuda = driver.bindings()
    attribute = cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
    return driver.checked(cuda.cuDeviceGetAttribute(attribute, device), "count multiprocessors")


def set_num_sms(count: int | None) -> None:
    """Let the Hopper kernels occupy at most ``count`` multiprocessors from now on; None: all.

    Kernels that stay on every multiprocessor until the product is done keep those of a
    communication library waiting. In a green context, which has fewer of them than the device, the
    driver refuses kernels whose blocks must run at once unless they are told how many.

    The number holds for all devices and threads of the process, and for launches to come, not for
    graphs that are captured. cuBLAS, which has settings of its own, is not concerned.

    Raises ``TiercelTypeError`` or ``TiercelValueError`` for what is no number of at least 2.

    >>> set_num_sms(100)  # of 132, on an H200
    >>> set_num_sms(None)
    """
    if count is not None:
        if not isinstance(count, int) or isinstance(count, bool):
            raise TiercelTypeError(
                f"count is a {type(count).__name__}; allowed: an int, or None for all"
            )
        if count < LEAST:
            raise TiercelValueError(
                f"count is {count}; allowed: {LEAST} or more, since two blocks of a cluster run at "
                "once; or None for all"
            )
    global most_multiprocessors
    most_multiprocessors = count
    launch.forget()
