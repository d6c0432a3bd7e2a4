"""Whether the Hopper kernels can run here, and if not, what is missing."""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

#: First imports one after the other: ``cuda.core`` renames its modules while it is imported, and a
#: second thread found it without them.
_IMPORTING = threading.Lock()


def device_of_address(address: int) -> int | None:
    """Number of the CUDA device that memory belongs to; None where there is no telling.

    >>> device_of_address(0) is None
    True
    """
    try:
        from cuda.bindings import driver  # pyright: ignore[reportAttributeAccessIssue]

        kind = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        status, device = driver.cuPointerGetAttribute(kind, address)
    except (ImportError, RuntimeError):  # no bindings, or no driver
        return None
    return int(device) if int(status) == 0 else None


@cache
def available(device: int = 0) -> str | None:
    """``None`` when the kernels run on CUDA device ``device``, else one line that says why not.

    >>> reason = available()
    >>> reason is None or isinstance(reason, str)
    True
    """
    try:
        with _IMPORTING:
            driver = _imported()
    except ImportError as error:
        return f"{error.name or error} is not installed: `pip install 'tiercel[cuda]'`"
    try:
        status, *_ = driver.cuInit(0)
        if int(status) != 0:
            return f"the CUDA driver does not start: {status.name}"
        status, handle = driver.cuDeviceGet(device)
        if int(status) != 0:
            return f"there is no CUDA device {device}: {status.name}"
        kinds = driver.CUdevice_attribute
        numbers = [
            driver.cuDeviceGetAttribute(kind, handle)[1]
            for kind in (
                kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            )
        ]
    except RuntimeError as error:  # cuda-bindings found no driver library
        return f"no CUDA driver: {error}"
    if numbers != [9, 0]:
        major, minor = numbers
        return f"device {device} has compute capability {major}.{minor}; the kernels need 9.0"
    return None


def _imported() -> Any:
    """``cuda.bindings.driver``, and ``cuda.core`` imported for those who need it later."""
    from cuda.bindings import driver  # pyright: ignore[reportAttributeAccessIssue]
    from cuda.core import Program  # noqa: F401 # pyright: ignore[reportAttributeAccessIssue]

    return driver
