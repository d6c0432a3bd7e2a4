"""CUDA text → sm_90a machine code, by NVRTC through cuda-core; cached on disk."""

from __future__ import annotations

import atexit
import hashlib
import tempfile
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Any

from tiercel import cache as disk
from tiercel.errors import TiercelRuntimeError

ARCHITECTURE = "sm_90a"  # wgmma and setmaxnreg exist only here
OPTIONS = {
    "std": "c++20",
    "arch": ARCHITECTURE,
    # NVRTC 13.0 takes a generic lambda for a host function otherwise.
    "device_as_default_execution_space": True,
}
WHEELS = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu13", "nvidia-cuda-nvrtc-cu12")


def cubin(text: str, name: str) -> bytes:
    """Machine code of a translation unit, from the cache or freshly compiled.

    ``TIERCEL_DUMP=folder`` writes the text and the machine code there as ``name``. Raises
    :class:`TiercelRuntimeError` when NVRTC is missing or rejects the text.
    """
    code = disk.get("hopper", f"{_fingerprint()}-{text}", lambda: _compile(text, name))
    disk.dump(f"{name}.cu", text)
    disk.dump(f"{name}.cubin", code)
    return code


@cache
def _fingerprint() -> str:
    """Changes with the kernels' source and the compiler."""
    digest = hashlib.sha256()
    for _, text in sorted(headers().items()):
        digest.update(text)
    digest.update(repr((_compiler(), sorted(OPTIONS.items()))).encode())
    return digest.hexdigest()[:20]


@cache
def headers() -> dict[str, bytes]:
    """The kernels' source, by the names of its files; the package may be a zip file."""
    found = files("tiercel.targets.hopper").joinpath("kernels").iterdir()
    return {file.name: file.read_bytes() for file in found if file.name.endswith(".cuh")}


@cache
def include_folder() -> Path:
    """Where NVRTC finds them: the package's folder, or one that holds copies until the end."""
    folder = files("tiercel.targets.hopper").joinpath("kernels")
    if isinstance(folder, Path):
        return folder
    copies = tempfile.TemporaryDirectory(prefix="tiercel-")
    atexit.register(copies.cleanup)
    for name, text in headers().items():
        Path(copies.name, name).write_bytes(text)
    return Path(copies.name)


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
        options: Any = {**OPTIONS, "include_path": str(include_folder())}
        program = Program(text, "c++", ProgramOptions(name=f"{name}.cu", **options))
        return bytes(program.compile("cubin").code)
    except Exception as error:  # cuda-core raises its own kinds, with NVRTC's log as the message
        raise TiercelRuntimeError(f"NVRTC rejected kernel {name}: {error}") from error
