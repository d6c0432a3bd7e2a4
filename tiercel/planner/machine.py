"""What the cost model knows of a machine: measured once, cached, printable, shippable."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from importlib.resources import files
from typing import Any

from tiercel import cache as disk
from tiercel.lower.blocking import Tile


@dataclass(frozen=True)
class Rates:
    """Speeds of one compute dtype on one core, unless ``all_cores`` says otherwise.

    ``peak``: multiply-add peak, GFLOP/s. ``kernel``: the macro-kernel's share of it on deep tiles.
    ``tile``, ``update``: nanoseconds that each register tile costs beside its multiplications, and
    that each further destination adds. ``sum_a``, ``sum_b``: GB/s (read + written) of forming
    operand sums; ``stage``, ``store``: GB/s of reading the operands and writing C; ``read``: GB/s
    from memory.
    ``vendor``: GFLOP/s of NumPy's BLAS on large squares; ``half``: sizes (M, N, K) at which it
    reaches half of that along each dimension, ``half_columns`` (M, N) where B, or A, lies by
    columns; ``vendor_all_cores``, ``half_all_cores``: with all cores, which share the memory that
    short sides wait for.
    ``scaling``, ``memory_scaling``: speed-up of tiercel's multiplications, and of its packing, with
    all cores.
    """

    peak: float
    kernel: float
    tile: float
    update: float
    sum_a: float
    sum_b: float
    stage: float
    store: float
    read: float
    vendor: float
    half: tuple[float, float, float]
    half_columns: tuple[float, float]
    vendor_all_cores: float
    half_all_cores: tuple[float, float, float]
    scaling: float
    memory_scaling: float


@dataclass(frozen=True)
class Machine:
    """A CPU as the planner sees it. ``tiles``: the micro-kernel's shape by compute dtype.

    ``expires``: Unix time from which it is measured again, because other programs were running;
    None for a profile that stays. ``kind``: machines for which a shipped profile holds.
    """

    name: str
    isa: str
    cores: int
    l1: int
    l2: int
    l3: int
    tiles: Mapping[str, Tile]
    rates: Mapping[str, Rates]
    fingerprint: str
    measured: bool
    expires: float | None = None
    kind: str = ""
    notes: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        if "unavailable" in self.notes:  # all figures stand for nothing
            return f"products are NumPy's: {self.notes['unavailable'] or 'nothing was measured'}"
        caches = ", ".join(f"L{i} {getattr(self, f'l{i}') >> 10} KiB" for i in (1, 2, 3))
        cores = f"{self.cores} core{'s' if self.cores > 1 else ''}"
        lines = [f"{self.name}, {cores}, {self.isa}, {caches}"]
        for dtype, r in self.rates.items():
            lines.append(
                f"  {dtype}: peak {r.peak:.0f} GFLOP/s a core, own kernel {r.kernel:.0%} of it, "
                f"NumPy {r.vendor:.0f} on one core, {r.vendor_all_cores:.0f} on all"
            )
        return "\n".join(lines)

    def __or__(self, other: Machine) -> Machine:
        """Also the dtypes of ``other``, a profile of the same machine."""
        tiles, rates = {**self.tiles, **other.tiles}, {**self.rates, **other.rates}
        return replace(self, tiles=tiles, rates=rates)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Machine:
        """Inverse of :meth:`to_json`. Raises ``ValueError``, ``KeyError`` or ``TypeError``."""
        data = json.loads(text)
        data["tiles"] = {k: Tile(**v) for k, v in data["tiles"].items()}
        data["rates"] = {k: Rates(**{**v, **_halves(v)}) for k, v in data["rates"].items()}
        return cls(**data)


def _halves(rates: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
    """As measured; or those of rows on one core, from before the others were told apart."""
    half = tuple(rates["half"])
    return {
        "half": half,
        "half_columns": tuple(rates.get("half_columns", half[:2])),
        "half_all_cores": tuple(rates.get("half_all_cores", half)),
    }


def cached(
    fingerprint: str, measure: Callable[[], Machine], *, kind: str = "", dtype: str = ""
) -> Machine:
    """The profile stored for ``fingerprint``, or the one shipped for ``kind`` and ``dtype``.

    Where there is neither it is measured, and stored. A shipped one is not stored: a later version
    may know better.
    """
    stored = disk.load("machine", fingerprint)
    if stored is not None:
        try:
            machine = Machine.from_json(stored.decode())
            if machine.expires is None or time.time() < machine.expires:
                return machine
        except (ValueError, KeyError, TypeError):  # written by another version
            pass
    known = shipped(kind, dtype)
    if known is not None:
        return replace(known, fingerprint=fingerprint)
    machine = measure()
    keep(machine)
    return machine


def shipped(kind: str, dtype: str) -> Machine | None:
    """The profile of one compute dtype that comes with the package; None for unknown machines.

    >>> shipped("abacus", "float32") is None
    True
    """
    for machine in all_shipped():
        if machine.kind == kind and dtype in machine.rates:
            return replace(
                machine,
                tiles={dtype: machine.tiles[dtype]},
                rates={dtype: machine.rates[dtype]},
            )
    return None


@lru_cache(maxsize=1)
def all_shipped() -> tuple[Machine, ...]:
    """Every profile that comes with the package, each with all its compute dtypes."""
    folder = files("tiercel.planner").joinpath("profiles")
    found = sorted((f for f in folder.iterdir() if f.name.endswith(".json")), key=lambda f: f.name)
    return tuple(Machine.from_json(file.read_text(encoding="utf-8")) for file in found)


def keep(machine: Machine) -> None:
    """Store a profile under its fingerprint, replacing an older one."""
    disk.store("machine", machine.fingerprint, machine.to_json().encode())
