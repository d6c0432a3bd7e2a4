"""What ran: the last plan of each thread, and totals by algorithm for the whole process.

Planned calls are counted and timed (0.6 µs). A product that is known to be NumPy's takes a shortcut
of which 0.5 µs is all the overhead there is: it is counted, not timed. Products of tiny arrays,
which are never planned, leave no trace.
"""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass, replace
from threading import get_ident
from typing import TYPE_CHECKING, Any

from tiercel.targets.cpu.params import CALLS, LATEST, NOTED, OWN_CALLS, THREAD

if TYPE_CHECKING:
    from tiercel.planner.plan import Plan
    from tiercel.targets.cpu.shortcut.alone import Alone


@dataclass(frozen=True)
class Count:
    """What one algorithm has done since the process began, or since the counters were reset.

    ``calls``: 2-D products; a batch counts each, one left to NumPy once. ``seconds``: wall-clock
    time in them, packing and checks included. ``multiplications_saved``: real multiplications fewer
    than the classical product's. ``refused``: calls whose data the guard refused, so that another
    algorithm ran (and was counted). ``untimed``: of ``calls``, those that ``seconds`` leaves out.
    """

    calls: int = 0
    seconds: float = 0.0
    multiplications_saved: int = 0
    refused: int = 0
    untimed: int = 0


class _Here(threading.local):
    """Each thread's own."""

    plan: Plan | None = None
    shortcuts: int = 0  # of all threads, when the plan ran


here = _Here()


class _Numpys:
    """Calls that took a shortcut: how many, and the plan and thread of the latest one.

    ``notes`` are words that generated code writes, too (at ``address``): with cold caches a write
    to thread-local memory costs 2 µs in Python. Threads that meet here may count one call instead
    of two (a lock would cost as much again as the rest), and a thread whose call was not the latest
    has the plan of the one before as its last.
    """

    __slots__ = ("_memory", "address", "alone", "notes", "plans")

    def __init__(self) -> None:
        self._memory = ctypes.create_string_buffer(NOTED * 8)
        self.address = ctypes.addressof(self._memory)
        self.notes = memoryview(self._memory).cast("B").cast("q")
        self.plans: list[Plan | None] = [None]
        self.alone: list[tuple[Plan, Alone]] = []  # own products that generated code counts

    def number(self, plan: Plan, alone: Alone | None = None) -> int:
        """A number for a plan, not 0; ``alone``: what counts its calls and times them."""
        if alone is not None:
            self.alone.append((plan, alone))
        self.plans.append(plan)
        return len(self.plans) - 1

    def count(self, number: int) -> None:
        """Count a call of the product whose plan has that number."""
        self.notes[CALLS] += 1
        self.notes[LATEST], self.notes[THREAD] = number, get_ident()

    def forget(self) -> None:
        """Forget the plans."""
        collect()
        self.alone.clear()
        del self.plans[1:]
        self.notes[THREAD] = 0


numpys = _Numpys()

#: By algorithm: calls, seconds, multiplications saved, refused.
_counts: dict[str, list[Any]] = {}
_lock = threading.Lock()

#: Calls of the shortcut before the counters were reset.
_counted = [0]


def record(plan: Plan, seconds: float, saved: int = 0, *, refused: bool = False) -> None:
    """Count one 2-D product of ``plan``'s chosen algorithm, and remember the plan."""
    here.plan, here.shortcuts = plan, numpys.notes[CALLS]
    name = plan.chosen.algorithm
    with _lock:
        count = _counts.get(name)
        if count is None:
            count = _counts[name] = [0, 0.0, 0, 0]
        count[3 if refused else 0] += 1
        count[1] += seconds
        count[2] += saved


def collect() -> None:
    """Add what generated code has counted of own products."""
    for plan, alone in numpys.alone:
        calls, seconds = alone.taken()
        with _lock:
            count = _counts.setdefault(plan.chosen.algorithm, [0, 0.0, 0, 0])
            count[0] += calls
            count[1] += seconds


def last_plan() -> Plan | None:
    """The plan of the calling thread's last planned product; None before the first one.

    Where the data made a plan's algorithm unsafe, it is the plan that ran in its place.
    """
    calls, number, thread, _ = numpys.notes
    newer = thread == get_ident() and calls != here.shortcuts
    # A call that ended after plans were forgotten has noted the number of one.
    return numpys.plans[number] if newer and number < len(numpys.plans) else here.plan


def stats(*, reset: bool = False) -> dict[str, Count]:
    """Totals by algorithm over all threads: calls, seconds, multiplications saved.

    "vendor" is NumPy's product. ``reset`` starts all counters from zero again.

    >>> import numpy as np, tiercel
    >>> _ = tiercel.stats(reset=True)
    >>> _ = tiercel.matmul(np.ones((300, 300)), np.ones((300, 300)), scheme="classical")
    >>> done = tiercel.stats()["classical"]
    >>> done.calls, done.multiplications_saved, done.seconds > 0
    (1, 0, True)
    """
    collect()
    with _lock:
        counts = {name: Count(*count) for name, count in _counts.items() if any(count)}
        untimed = numpys.notes[CALLS] - numpys.notes[OWN_CALLS] - _counted[0]
        if reset:
            _counts.clear()
            _counted[0] += untimed
    if untimed:
        vendor = counts.get("vendor", Count())
        counts["vendor"] = replace(vendor, calls=vendor.calls + untimed, untimed=untimed)
    return counts
