"""What ``tiercel tune`` has found out about a machine, as a file that others can use."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tiercel import runtime
from tiercel.errors import TiercelValueError
from tiercel.planner import machine as profiles
from tiercel.planner import winners
from tiercel.planner.machine import Machine
from tiercel.planner.winners import Measured

FORMAT = 1


@dataclass(frozen=True)
class Tuned:
    """Profiles of one machine, one per compute dtype, and the products measured on it."""

    profiles: tuple[Machine, ...]
    measured: tuple[Measured, ...] = ()


def of_this_machine(dtypes: Sequence[str]) -> Tuned:
    """What the cache holds; a missing profile is measured."""
    found = tuple(runtime.machine((dtype,)) for dtype in dtypes)
    known = [winners.known(profile.fingerprint) for profile in found]
    return Tuned(found, tuple(m for entries in known for m in entries.values()))


def write(tuned: Tuned, path: Path) -> None:
    """Write a file that `read` reads."""
    data = {
        "format": FORMAT,
        "profiles": [json.loads(profile.to_json()) for profile in tuned.profiles],
        "measured": [_short(asdict(m)) for m in tuned.measured],
    }
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def read(path: Path) -> Tuned:
    """What `write` wrote. Raises ``TiercelValueError`` for any other file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data.get("format") != FORMAT:
            raise ValueError(f"format {data.get('format')!r}, not {FORMAT}")
        made = tuple(Machine.from_json(json.dumps(x)) for x in data["profiles"])
        return Tuned(made, tuple(map(Measured.from_data, data["measured"])))
    except (ValueError, KeyError, TypeError, AttributeError) as reason:
        raise TiercelValueError(
            f"{path} is not what `tiercel tune --export` of this version writes: {reason}; export "
            "it again"
        ) from None


def adopt(tuned: Tuned) -> Tuned:
    """Store what was measured on a machine like this one; returns what was taken.

    Raises ``TiercelValueError`` where nothing fits: a profile holds for a CPU model, instruction
    set, number of cores, NumPy version and dtype.
    """
    here = {dtype: runtime.fingerprint(dtype) for dtype in runtime.DTYPES}
    fitting = tuple(x for x in tuned.profiles if x.fingerprint in here.values())
    if not fitting:
        names = ", ".join(f"{x.name} ({x.cores} cores, {x.isa})" for x in tuned.profiles)
        raise TiercelValueError(
            f"the file describes {names or 'no machine'}; this machine, or its NumPy or tiercel, "
            "is another: run `tiercel tune` here"
        )
    taken: list[Measured] = []
    for profile in fitting:
        profiles.keep(profile)
        compute = next(iter(profile.rates))
        own = [m for m in tuned.measured if m.compute == compute]
        winners.add(profile.fingerprint, own)
        taken += own
    runtime.forget()
    return Tuned(fitting, tuple(taken))


def _short(value: Any) -> Any:
    """Six digits of every float: far below the noise."""
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    return float(f"{value:.6g}") if isinstance(value, float) else value
