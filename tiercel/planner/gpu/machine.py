"""What the planner knows of a GPU: a shipped profile, or one measured on first use."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from importlib.resources import files
from itertools import pairwise
from typing import Any

from tiercel.errors import TiercelValueError

#: Dtypes whose own kernels share one set of rates.
SIXTEEN_BIT = ("bfloat16", "float16")


@dataclass(frozen=True)
class GpuRates:
    """Speeds of one dtype on one GPU, in real operations (a complex product has 8MNK).

    ``peak``: GFLOP/s of the data sheet. ``vendor``: (side, TFLOP/s) of the vendor's library on
    squares, in steady operation, where power sets the clock. ``batched``: rate of its batched
    routine on large planes over that of one product of as many operations; ``half``: side of a
    plane at which the batched routine reaches half of that; ``ramp``: elements of K that take as
    long as a tile's start and end. ``crossed``: the vendor's rate where neither operand is
    contiguous along K over that of other layouts.
    """

    peak: float
    vendor: tuple[tuple[int, float], ...]
    batched: float = 1.0
    half: float = 0.0
    ramp: float = 0.0
    crossed: float = 1.0

    def at(self, side: float) -> float:
        """TFLOP/s of a square; between two measured ones along the logarithm of the side.

        >>> GpuRates(0, ((1024, 40.0), (4096, 50.0))).at(2048)
        45.0
        """
        x = min(max(side, self.vendor[0][0]), self.vendor[-1][0])
        for (low, first), (high, second) in pairwise(self.vendor):
            if x <= high:
                return first + (second - first) * math.log(x / low) / math.log(high / low)
        return self.vendor[-1][1]


@dataclass(frozen=True)
class PlainRates:
    """The own classical kernel.

    ``multiply``: its rate over the vendor's where power sets the clock. ``clock``: TFLOP/s with all
    multiprocessors busy at the clock that is left where some are idle; then a tile's start and end
    take as long as ``ramp`` elements of K, which the rest of the power makes up for elsewhere.
    ``shown``: the same where power sets the clock and K is too long for the tiles that hide it.
    """

    multiply: float
    clock: float
    ramp: float
    shown: float = 0.0


@dataclass(frozen=True)
class FusedRates:
    """That kernel with a certain scheme inside: what it takes beyond its multiplications.

    ``multiply``, ``clock``: as above. ``combine``: GB/s, read and written, at which it gets
    its planes; ``both``: at most, where B is not packed and is combined as well. ``out``:
    nanoseconds for each thousand elements of C (partial sums saved, loaded and stored).
    """

    multiply: float
    combine: float
    out: float
    clock: float = math.inf
    both: float = math.inf


@dataclass(frozen=True)
class GpuMachine:
    """A GPU as the planner sees it. ``rates``: by dtype; another dtype is the vendor's.

    ``copy``, ``combine``, ``finish``, ``check``: GB/s (read + written) of copying, of forming
    operand sums, of forming C from products, and of the guard's pass over an operand. ``launch``:
    microseconds between two kernels of a stream; ``host``: microseconds of Python for each launch
    of a generated Triton kernel, which hide behind the device's work where that is longer.
    ``lead``: microseconds that the device waits for the first of them in an isolated call, which
    the planner does not want to lose; ``prepare``: for an own kernel with a scheme inside. (The own
    classical kernel starts as soon as the vendor's: 16.5 us of the host, and 16.6.)
    ``plain``: of the own classical 16-bit kernel; None: there is none.
    ``fused``: by name of the scheme, of that kernel with a scheme inside; none: there is none.
    ``plain_tf32``, ``fused_tf32``: the same of TF32.
    ``memory``: bytes. ``measured``: on this machine, not shipped.
    """

    name: str
    multiprocessors: int
    capability: tuple[int, int]
    memory: int
    copy: float
    combine: float
    finish: float
    check: float
    launch: float
    host: float
    lead: float
    prepare: float
    rates: Mapping[str, GpuRates]
    plain: PlainRates | None = None
    fused: Mapping[str, FusedRates] = field(default_factory=dict)
    plain_tf32: PlainRates | None = None
    fused_tf32: Mapping[str, FusedRates] = field(default_factory=dict)
    fingerprint: str = ""
    measured: bool = False
    notes: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        major, minor = self.capability
        lines = [
            f"{self.name}, {self.multiprocessors} multiprocessors, compute capability "
            f"{major}.{minor}, copies at {self.copy:.0f} GB/s"
        ]
        for dtype, rates in self.rates.items():
            speeds = ", ".join(f"{rate:.0f} at {side}" for side, rate in rates.vendor)
            lines.append(f"  {dtype}: vendor {speeds} TFLOP/s")
        if "spread" in self.notes:
            lines.append(f"  {self.notes['spread']}")
        return "\n".join(lines)

    def plain_of(self, dtype: str) -> PlainRates | None:
        """Rates of the own classical kernel in a dtype; None: there is none."""
        if dtype == "tfloat32":
            return self.plain_tf32
        return self.plain if dtype in SIXTEEN_BIT else None

    def fused_of(self, dtype: str) -> Mapping[str, FusedRates]:
        """The same of that kernel with a scheme inside, by the scheme's name."""
        if dtype == "tfloat32":
            return self.fused_tf32
        return self.fused if dtype in SIXTEEN_BIT else {}

    def without_kernels(self, reason: str) -> GpuMachine:
        """The same GPU where the own kernels cannot run, for a ``reason``."""
        bare = replace(self, plain=None, fused={}, plain_tf32=None, fused_tf32={})
        return replace(bare, notes={"unavailable": reason})

    def only(self, dtype: str, compute: str) -> GpuMachine:
        """The same GPU with the rates of ``dtype`` under the name of its compute dtype."""
        return replace(self, rates={compute: self.rates[dtype]})

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> GpuMachine:
        """Inverse of `to_json`. Raises ``ValueError``, ``KeyError`` or ``TypeError``."""
        data = json.loads(text)
        data["capability"] = tuple(data["capability"])
        data["rates"] = {
            dtype: GpuRates(**{**x, "vendor": tuple(map(tuple, x["vendor"]))})
            for dtype, x in data["rates"].items()
        }
        for kind in "", "_tf32":
            data[f"plain{kind}"] = _plain(data.get(f"plain{kind}"))
            data[f"fused{kind}"] = _fused(data.get(f"fused{kind}") or {})
        return cls(**data)


def _plain(data: Mapping[str, float] | float | None) -> PlainRates | None:
    """Older profiles have the rate alone, or a factor for A by columns, too."""
    if isinstance(data, int | float):
        return PlainRates(data, math.inf, 0.0)
    if data is None:
        return None
    return PlainRates(data["multiply"], data["clock"], data["ramp"], data.get("shown", 0.0))


def _fused(data: Mapping[str, Any]) -> dict[str, FusedRates]:
    """Rates by scheme. Older profiles know those of Winograd's only, and what combining takes for
    each element of an operand: 4.5 bytes of it.
    """
    if "left" in data:
        return {"winograd": FusedRates(data["multiply"], 4500 / data["left"], data["out"])}
    return {name: FusedRates(**rates) for name, rates in data.items()}


def known_names() -> tuple[str, ...]:
    """Names of the GPUs that a profile is shipped for, as their driver gives them."""
    return tuple(sorted(_shipped()))


def shipped(name: str) -> GpuMachine | None:
    """The profile that comes with the package; None for a GPU that was not measured.

    >>> shipped("NVIDIA H200").multiprocessors
    132
    >>> shipped("GeForce 256") is None
    True
    """
    return _shipped().get(name)


@lru_cache(maxsize=1)
def _shipped() -> dict[str, GpuMachine]:
    folder = files("tiercel.planner.gpu").joinpath("profiles")
    texts = (file.read_text(encoding="utf-8") for file in folder.iterdir() if _is_profile(file))
    machines = [GpuMachine.from_json(text) for text in texts]
    return {machine.name: machine for machine in machines}


def _is_profile(file: object) -> bool:
    return getattr(file, "name", "").endswith(".json")


def required(name: str) -> GpuMachine:
    """A shipped profile. Raises ``TiercelValueError`` with the known names."""
    found = shipped(name)
    if found is None:
        raise TiercelValueError(
            f"no profile of GPU {name!r} is shipped; known: {', '.join(known_names())}"
        )
    return found
