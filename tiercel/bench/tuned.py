"""What ``tiercel tune`` has found out about a machine, as a file that others can use."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tiercel import runtime
from tiercel.bench.results import short_floats
from tiercel.errors import TiercelValueError
from tiercel.planner import machine as profiles
from tiercel.planner import winners
from tiercel.planner.gpu import GpuMachine
from tiercel.planner.machine import Machine
from tiercel.planner.winners import Measured

FORMAT = 1


Profile = Machine | GpuMachine


@dataclass(frozen=True)
class Tuned:
    """Profiles of one machine, and the products measured on it.

    A CPU has a profile per compute dtype, a GPU one, or one per dtype if it was measured.
    """

    profiles: tuple[Profile, ...]
    measured: tuple[Measured, ...] = ()


def of_machines(machines: Sequence[Profile]) -> Tuned:
    """The given profiles, and what the cache holds of products measured on such machines."""
    found = {profile.fingerprint: profile for profile in machines}
    known = [winners.known(fingerprint) for fingerprint in found]
    return Tuned(tuple(found.values()), tuple(m for entries in known for m in entries.values()))


def write(tuned: Tuned, path: Path) -> None:
    """Write a file that `read` reads."""
    data = {
        "format": FORMAT,
        "profiles": [json.loads(profile.to_json()) for profile in tuned.profiles],
        "measured": [short_floats(asdict(m)) for m in tuned.measured],
    }
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def read(path: Path) -> Tuned:
    """What `write` wrote. Raises ``TiercelValueError`` for any other file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data.get("format") != FORMAT:
            raise ValueError(f"format {data.get('format')!r}, not {FORMAT}")
        made = tuple(map(_profile, data["profiles"]))
        return Tuned(made, tuple(map(Measured.from_data, data["measured"])))
    except (ValueError, KeyError, TypeError, AttributeError) as reason:
        raise TiercelValueError(
            f"{path} is not what `tiercel tune --export` of this version writes: {reason}; export "
            "it again"
        ) from None


def adopt(tuned: Tuned) -> Tuned:
    """Store what was measured on a machine like this one; returns what was taken.

    Raises ``TiercelValueError`` where nothing fits: a CPU's profile holds for a model, instruction
    set, number of cores, NumPy version and dtype, a GPU's for a name, its parts, and PyTorch.
    """
    fitting = tuple(x for x in tuned.profiles if x.fingerprint == _fingerprint_here(x))
    if not fitting:
        names = ", ".join(map(_described, tuned.profiles))
        raise TiercelValueError(
            f"the file describes {names or 'no machine'}; this machine, or its NumPy, PyTorch or "
            "tiercel, is another: run `tiercel tune` here"
        )
    taken: list[Measured] = []
    for profile in fitting:
        if isinstance(profile, Machine):
            profiles.keep(profile)
            compute = next(iter(profile.rates))
            own = [m for m in tuned.measured if m.compute == compute]
        else:
            own = [m for m in tuned.measured if m.dtype in profile.rates]
        winners.add(profile.fingerprint, own)
        taken += own
    runtime.forget()
    return Tuned(fitting, tuple(taken))


def _fingerprint_here(profile: Profile) -> str:
    """What a profile of this machine, for the same dtype, would be named; "" if there is none."""
    if isinstance(profile, Machine):
        return runtime.fingerprint(next(iter(profile.rates)))
    from tiercel.frontends.torch.cuda.machine import here

    found = here(next(iter(profile.rates)))
    return "" if found is None else found.fingerprint


def _profile(data: dict[str, Any]) -> Profile:
    made = GpuMachine if "multiprocessors" in data else Machine
    return made.from_json(json.dumps(data))


def _described(profile: Profile) -> str:
    if isinstance(profile, Machine):
        return f"{profile.name} ({profile.cores} cores, {profile.isa})"
    return f"{profile.name} ({profile.multiprocessors} multiprocessors)"
