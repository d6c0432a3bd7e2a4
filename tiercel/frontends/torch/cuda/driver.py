"""A GPU's driver and the power that it may draw, as NVIDIA's management library tells them.

Power sets the clock of a busy GPU, and a driver brings rules of its own for it: what was measured
under another one is measured again.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch


class DriverFacts(NamedTuple):
    """Version of the driver, and watts that the GPU may draw; "" and 0 where nobody tells."""

    version: str
    watts: int


@cache
def driver_facts(device: int) -> DriverFacts:
    """The facts of a CUDA device, asked for once.

    They need nvidia-ml-py, by which ``torch.cuda`` reads temperatures and clocks, too. Without it,
    on a GPU that is not NVIDIA's, or of which only a part is there, they are unknown.
    """
    try:
        import pynvml
    except ImportError:
        return DriverFacts("", 0)
    try:
        pynvml.nvmlInit()
        try:
            return DriverFacts(*_asked(pynvml, device))
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return DriverFacts("", 0)


def _asked(nvml: Any, device: int) -> tuple[str, int]:
    version = nvml.nvmlSystemGetDriverVersion()
    # By its UUID: the library counts the GPUs that CUDA_VISIBLE_DEVICES hides, too.
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", "unknown")
    handle = nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    return version, round(nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000)
