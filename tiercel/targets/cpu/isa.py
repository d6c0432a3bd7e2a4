"""What the generator needs to know of a CPU: vector width, registers, caches, cores.

Nothing here is a table of CPU names: LLVM reports the features, the operating system the caches,
and the rest follows.
"""

from __future__ import annotations

import os
import platform
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ELEMENT_BYTES = {"float32": 4, "float64": 8}


@dataclass(frozen=True)
class Isa:
    """An instruction set as the code generator sees it.

    ``vector_bytes`` and ``registers`` size the register tile; ``l1``, ``l2`` and ``l3`` are the
    bytes of data cache that one core can use; ``half`` says that float16 converts in hardware.
    """

    name: str
    triple: str
    cpu: str
    features: str
    vector_bytes: int
    registers: int
    half: bool
    l1: int
    l2: int
    l3: int

    def lanes(self, dtype: str) -> int:
        """Vector lanes of a compute dtype (``float32`` or ``float64``)."""
        return self.vector_bytes // ELEMENT_BYTES[dtype]

    def register_tile(self, dtype: str) -> tuple[int, int]:
        """Rows and columns (mr, nr) of the micro-kernel's register tile.

        With 16 registers: 6 rows × 2 vectors (12 accumulators, 2 for B, the rest for A).
        With 32: 10 × 2 on x86-64 (96 % of peak on Emerald Rapids; 12 × 2 spills: 67 %); 5 × 4
        elsewhere, where elements of A are loaded several at a time (8 × 3, 6 × 4: accumulators
        spill in the loop).
        """
        lanes = self.lanes(dtype)
        if self.registers < 32:
            return 6, 2 * lanes
        return (10, 2 * lanes) if self.name == "avx512" else (5, 4 * lanes)


def from_features(triple: str, cpu: str, features: dict[str, bool], caches: dict[int, int]) -> Isa:
    """The :class:`Isa` for LLVM's feature map; raises ``LookupError`` if it is not supported."""
    on = {name for name, enabled in features.items() if enabled}
    flags = ",".join(("+" if enabled else "-") + name for name, enabled in features.items())
    common = {
        "triple": triple,
        "cpu": cpu,
        "features": flags,
        "l1": caches.get(1, 32 << 10),
        "l2": caches.get(2, 512 << 10),
        "l3": caches.get(3, 8 << 20),
    }
    if triple.startswith(("x86_64", "amd64")):
        if {"avx512f", "avx512vl", "avx512dq", "avx512bw"} <= on:
            return Isa("avx512", vector_bytes=64, registers=32, half=True, **common)
        if {"avx2", "fma"} <= on:
            return Isa("avx2", vector_bytes=32, registers=16, half="f16c" in on, **common)
        raise LookupError("tiercel's CPU kernels need AVX2 and FMA (or AVX-512) on x86-64")
    if triple.startswith(("aarch64", "arm64")):
        return Isa("neon", vector_bytes=16, registers=32, half=True, **common)
    raise LookupError(f"tiercel has no CPU kernels for {triple}")


@cache
def host() -> Isa:
    """The machine this process runs on. Raises ``LookupError`` when it is not supported.

    AVX2 is preferred where AVX-512 multiplies no faster (``width.py``); ``TIERCEL_ISA``, "avx2" or
    "avx512", overrules that.
    """
    import llvmlite.binding as llvm

    features = dict(llvm.get_host_cpu_features())
    isa = from_features(
        llvm.get_process_triple(), llvm.get_host_cpu_name(), features, cache_sizes()
    )
    limit = os.environ.get("TIERCEL_ISA")
    if limit and limit not in ("avx2", isa.name):
        warnings.warn(
            f"TIERCEL_ISA={limit!r} is not known here; allowed: 'avx2' or 'avx512', which this "
            "processor must have; the faster of what it has is used",
            RuntimeWarning,
            stacklevel=2,
        )
    if isa.name != "avx512":
        return isa
    without = {k: v and not k.startswith("avx512") for k, v in features.items()}
    narrow = from_features(isa.triple, isa.cpu, without, cache_sizes())
    if limit in ("avx2", "avx512"):
        return narrow if limit == "avx2" else isa
    from tiercel.targets.cpu.width import multiplies_wide

    return isa if multiplies_wide(isa, narrow) else narrow


def cache_sizes() -> dict[int, int]:
    """Bytes of data cache by level, as one core sees them; empty where the system does not say."""
    sizes: dict[int, int] = {}
    root = Path("/sys/devices/system/cpu/cpu0/cache")
    units = {"K": 1 << 10, "M": 1 << 20}
    for index in sorted(root.glob("index*")) if root.is_dir() else []:
        try:
            kind, level, size = (
                (index / name).read_text().strip() for name in ("type", "level", "size")
            )
            if kind != "Instruction":
                sizes[int(level)] = int(size[:-1]) * units[size[-1]]
        except (OSError, ValueError, KeyError):
            continue
    return sizes


def machine_name() -> str:
    """Human-readable CPU model."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
