"""Measured times of candidates (``tiercel tune --shapes``), which outrank predicted ones.

One cache entry per machine fingerprint holds all of them. They are consulted when a plan is made,
never when it is found again: a call does not get slower.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

from tiercel import cache as disk
from tiercel.errors import TiercelValueError
from tiercel.planner.plan import Plan
from tiercel.planner.problem import Problem

log = logging.getLogger("tiercel")

KIND = "winners"

#: The predicted choice stays unless another was measured to be faster by this much: repeated
#: measurements of one candidate differ by about as much.
MARGIN = 1.01


@dataclass(frozen=True)
class Measured:
    """Median seconds of the candidates of one product, measured in turns.

    ``seconds`` and ``predicted``: by algorithm. ``planned``: what the cost model chose.
    ``workspace``: extra bytes by algorithm; ``fringes``: rows or columns of C that an algorithm
    left to the vendor's product, if any. The other fields are those of ``Problem``.
    """

    M: int
    N: int
    K: int
    dtype: str
    layout_a: str
    layout_b: str
    static_b: bool
    threads: int
    planned: str
    seconds: Mapping[str, float]
    predicted: Mapping[str, float]
    workspace: Mapping[str, int]
    fringes: Mapping[str, int] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return key_of(self)

    @property
    def best(self) -> str:
        """The algorithm with the least median."""
        return min(self.seconds, key=self.seconds.__getitem__)

    @property
    def regret(self) -> float:
        """Time of what the cost model chose over the best time measured; at least 1."""
        return self.seconds[self.planned] / self.seconds[self.best]

    @property
    def against_vendor(self) -> float:
        """Time of what the cost model chose over NumPy's."""
        return self.seconds[self.planned] / self.seconds["vendor"]

    @property
    def compute(self) -> str:
        """The dtype whose profile the measurement belongs to."""
        return Problem(self.M, self.N, self.K, self.dtype).compute

    @property
    def flops(self) -> int:
        """Real operations of the classical product."""
        return Problem(self.M, self.N, self.K, self.dtype).flops

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Measured:
        """From what ``dataclasses.asdict`` made. Raises ``TiercelValueError`` for anything else."""
        try:
            made = cls(**data)
            if made.planned in made.seconds and "vendor" in made.seconds:
                return made
            reason = f"times of {', '.join(made.seconds)} only"
        except (TypeError, KeyError) as error:
            reason = str(error)
        raise TiercelValueError(
            f"not the measurement of a product: {reason}; expected are the entries that "
            "`tiercel tune --export` writes"
        )


def key_of(product: Problem | Measured) -> str:
    """What a measurement holds for: sizes, dtype, layouts, static B and threads.

    Epilogues and budgets are left out: they change which candidates are allowed, hardly their time.
    """
    p = product
    static = " static" if p.static_b else ""
    return f"{p.M} {p.N} {p.K} {p.dtype} {p.layout_a} {p.layout_b}{static} {p.threads}"


def applied(plan: Plan) -> Plan:
    """The plan with the fastest allowed candidate of those that were measured here.

    A scheme that the caller named stays; one that came with a packed operand need not.
    """
    problem = plan.problem
    if problem.scheme is not None and problem.must_use:
        return plan
    found = _stored(plan.machine.fingerprint).get(key_of(problem))
    if found is None:
        return plan
    allowed = {c.algorithm for c in plan.candidates if not c.rejected}
    times = {name: t for name, t in found.seconds.items() if name in allowed}
    if plan.chosen.algorithm not in times:
        return plan
    best = min(times, key=times.__getitem__)
    if times[best] * MARGIN >= times[plan.chosen.algorithm]:
        return plan
    log.debug("measured: %s before %s for %s", best, plan.chosen.algorithm, key_of(problem))
    return plan.choosing(best)


def known(fingerprint: str) -> Mapping[str, Measured]:
    """All measurements stored for a machine, by ``key_of``."""
    return _stored(fingerprint)


def add(fingerprint: str, measured: Iterable[Measured]) -> None:
    """Store measurements for a machine, replacing older ones of the same products."""
    forget()  # another process may have stored some meanwhile
    merged = {**_stored(fingerprint), **{m.key: m for m in measured}}
    text = json.dumps([asdict(m) for m in merged.values()])
    disk.store(KIND, fingerprint, text.encode())
    forget()


def forget() -> None:
    """Read the cache again when asked the next time."""
    _stored.cache_clear()


@lru_cache(maxsize=16)
def _stored(fingerprint: str) -> dict[str, Measured]:
    stored = disk.load(KIND, fingerprint)
    try:
        entries = json.loads(stored) if stored else []
        return {m.key: m for m in map(Measured.from_data, entries)}
    except (ValueError, TypeError):  # written by another version
        return {}
