"""The machine and the libraries, as far as a reader of a result must know them."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from tiercel.bench.crew import UNSET_VARIABLES

PACKAGES = ("tiercel", "numpy", "llvmlite", "torch", "scipy", "mkl", "ml_dtypes", "threadpoolctl")


def describe_machine() -> dict[str, Any]:
    """CPU name, cores this process may use, memory, clock, system and tiercel's machine profile."""
    from tiercel.runtime import machine as current

    return {
        "cpu": cpu_name(),
        "cores": usable_cores(),
        "memory_gib": memory_gib(),
        "clock_mhz": clock_mhz(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "profile": asdict(current()),
    }


def package_versions() -> dict[str, str]:
    """Versions of the packages that matter for speed, those installed."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def slowing_variables() -> dict[str, str]:
    """Variables set in this shell that can slow a peer; benchmark workers run without them."""
    return {name: os.environ[name] for name in UNSET_VARIABLES if name in os.environ}


def load_average() -> float | None:
    """Running processes, averaged over a minute; None where the system does not count them."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def cpu_name() -> str:
    """The CPU's own name for itself."""
    for line in _lines(Path("/proc/cpuinfo")):
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_gib() -> float | None:
    """Physical memory in GiB, or None where the system does not say."""
    try:
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
    return round(pages * size / 2**30, 1)


def clock_mhz() -> float | None:
    """Clock of the first core now, in MHz, or None where the system does not say."""
    for line in _lines(Path("/proc/cpuinfo")):
        key, _, value = line.partition(":")
        if key.strip() == "cpu MHz":
            return float(value)
    return None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
