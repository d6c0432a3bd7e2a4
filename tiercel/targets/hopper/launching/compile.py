"""CUDA text → sm_90a machine code, by NVRTC through cuda-core; cached on disk."""

from __future__ import annotations

import hashlib
import os
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tiercel import cache as disk
from tiercel.errors import TiercelRuntimeError

FOLDER = Path(__file__).parents[1] / "kernels"
ARCHITECTURE = "sm_90a"  # wgmma and setmaxnreg exist only here
WHEELS = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu13", "nvidia-cuda-nvrtc-cu12")


def cubin(text: str, name: str) -> bytes:
    """Machine code of a translation unit, from the cache or freshly compiled.

    ``TIERCEL_DUMP=folder`` writes the text and the machine code there as ``name``. Raises
    :class:`TiercelRuntimeError` when NVRTC is missing or rejects the text.
    """
    code = disk.get("hopper", f"{_fingerprint()}-{text}", lambda: _compile(text, name))
    if folder := os.environ.get("TIERCEL_DUMP"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        Path(folder, f"{name}.cu").write_text(text, encoding="utf-8")
        Path(folder, f"{name}.cubin").write_bytes(code)
    return code


@cache
def _fingerprint() -> str:
    """Changes with the kernels' source and the compiler."""
    digest = hashlib.sha256()
    for file in sorted(FOLDER.glob("*.cuh")):
        digest.update(file.read_bytes())
    digest.update(repr((_compiler(), ARCHITECTURE, _options())).encode())
    return digest.hexdigest()[:20]


def _options() -> dict[str, Any]:
    return {
        "std": "c++20",
        "arch": ARCHITECTURE,
        "include_path": str(FOLDER),
        # NVRTC 13.0 takes a generic lambda for a host function otherwise.
        "device_as_default_execution_space": True,
    }


def _compiler() -> str:
    """The version of the wheel that cuda-core would load NVRTC from, or else NVRTC's own.

    Loading NVRTC takes 0.15 s, and a kernel that is in the cache does not need it.
    """
    for wheel in WHEELS:
        try:
            return f"{wheel} {version(wheel)}"
        except PackageNotFoundError:
            continue
    return "NVRTC {}.{}".format(*_nvrtc_version())


def _nvrtc_version() -> tuple[int, int]:
    try:
        from cuda.bindings import nvrtc  # pyright: ignore[reportAttributeAccessIssue]
    except ImportError:
        raise TiercelRuntimeError(
            "the Hopper kernels are compiled by NVRTC, and cuda-core is not installed. Install it "
            "with `pip install 'tiercel[cuda]'`, or leave target='hopper' out"
        ) from None
    error, major, minor = nvrtc.nvrtcVersion()
    if error != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise TiercelRuntimeError(f"NVRTC does not answer: {error}. Reinstall nvidia-cuda-nvrtc")
    return major, minor


def _compile(text: str, name: str) -> bytes:
    from cuda.core import Program, ProgramOptions  # pyright: ignore[reportAttributeAccessIssue]

    try:
        program = Program(text, "c++", ProgramOptions(name=f"{name}.cu", **_options()))
        return bytes(program.compile("cubin").code)
    except Exception as error:  # cuda-core raises its own kinds, with NVRTC's log as the message
        raise TiercelRuntimeError(f"NVRTC rejected kernel {name}: {error}") from error
