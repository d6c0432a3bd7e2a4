"""A search between its rounds: pools, the best schemes, and both on disk."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from tiercel.errors import TiercelValueError
from tiercel.schemes.catalogue import find
from tiercel.schemes.files import dumps
from tiercel.schemes.files import load as load_scheme
from tiercel.schemes.scheme import Scheme
from tiercel.schemes.search import pool as pools
from tiercel.schemes.search.descend import choose
from tiercel.schemes.search.node import Node, Ring
from tiercel.schemes.search.polish import Polish, Polished
from tiercel.schemes.search.pool import Pool
from tiercel.schemes.search.settings import Progress, Settings
from tiercel.schemes.search.starts import Start, begin, starts
from tiercel.schemes.search.symmetry import orbits
from tiercel.schemes.search.tasks import Descent, Result, Task
from tiercel.schemes.transform import orient

#: Schemes of the least rank that the second stage chooses from.
ELITE = 60

#: Share of the second stage's tasks that go on looking for a smaller rank: at the wanted one, and
#: where it has not been reached.
STILL_DESCENDING = 0.1
STILL_WANTING = 0.7

#: Share of walks in the ring that is behind, for what is found modulo 2 may have no lift.
LAGGARD = 0.125

#: Share of starts from the classical scheme as a whole where nothing else is known; others begin
#: with two parts of it. Two of twelve walks of 10 M flips came to ⟨4,4,4;49⟩ from the whole, and
#: none of twelve from halves; for ⟨3,4,4;38⟩ halves are better.
UNDIVIDED = 0.5

#: Walks without a smaller rank after which the second stage begins with the least one so far.
PATIENCE = 20

Value = tuple[float, ...]


class State:
    """What a search knows; `tasks` and `merge` make a round of it."""

    def __init__(self, settings: Settings, folder: Path | None):
        self.settings, self.folder = settings, folder
        self.pools: dict[Ring, Pool] = {x: Pool(settings.grid, x) for x in settings.rings}
        self.elite: list[tuple[Value, Scheme]] = []  # the best first, the others in no order
        self.rounds, self.flips, self.seconds = 0, 0, 0.0
        self.waited = 0  # walks since the least rank fell
        self.told: tuple[int, int, float] | None = None  # when the best scheme was found
        self.starts: dict[Ring, list[Start]] = {}
        if settings.partition is None:
            self.starts = {
                ring: starts(settings.grid, ring, settings.known, catalogue=settings.catalogue)
                for ring in settings.rings
            }
        if folder is not None:
            self._load(folder)
        continued = self.rounds > 0
        for scheme in self._known():
            # A search that goes on had them; only one that has come since may be of interest.
            if not (continued and self.elite) or self._value(scheme) < self.elite[0][0]:
                self._keep(scheme, np.random.default_rng(0))

    @property
    def best(self) -> Scheme | None:
        return self.elite[0][1] if self.elite else None

    @property
    def finished(self) -> bool:
        """Whether the wanted rank is there and nothing else was asked for."""
        best = self.best
        return self.settings.aim is None and best is not None and best.rank <= self.settings.wanted

    def tasks(self) -> list[Task]:
        """The next round, one task per process; the same for the same seed and history."""
        count = self.settings.processes
        made = [self._task(np.random.default_rng([self.settings.seed, self.rounds, i]))
                for i in range(count)]  # fmt: skip
        self.rounds += 1
        return made

    def merge(self, result: Result) -> None:
        """Take in what a task returned."""
        rng = np.random.default_rng([self.settings.seed, self.rounds, self.flips])
        if isinstance(result, Polished):
            self._keep(result.wandered, rng)
            self._keep(result.scheme, rng)
            return
        self.flips += result.flips
        before = self._least
        for node in result.nodes:
            self.pools[node.ring].add(node, rng)
        self.waited = self.waited + 1 if self._least == before else 0
        for scheme in result.schemes:
            self._keep(scheme, rng)

    def end_round(self, seconds: float) -> Progress:
        """Note when the best scheme was found, `seconds` after this search began."""
        if self.best is not None and self.told is None:
            self.told = self.rounds, self.flips, self.seconds + seconds
        least = self._least
        return Progress(
            seconds=self.seconds + seconds,
            flips=self.flips,
            least=0 if least is None else self.settings.rank_of(least),
            pooled=sum(map(len, self.pools.values())),
            best=self.best,
            figure=self.elite[0][0][1] if self.elite else None,
        )

    def save(self, seconds: float) -> None:
        """Put the provenance into the best scheme, and everything into the folder if any."""
        self.seconds += seconds
        if self.elite:
            value, scheme = self.elite[0]
            rounds, flips, took = self.told or (self.rounds, self.flips, self.seconds)
            counts = f"--rounds {rounds}: {flips / 1e6:.0f} M flips, {took:.0f} s"
            told = f"{self.settings.command} {counts}{self._origin(scheme.rank)}"
            self.elite[0] = value, replace(scheme, name="", provenance=told)
        if self.folder is None:
            return
        for ring, pool in self.pools.items():
            pools.save(pool, self.folder / f"{ring}.npz")
        for path in self.folder.glob("scheme-*.json"):
            path.unlink()
        for index, (_, scheme) in enumerate(self.elite):
            path = self.folder / f"scheme-{index:03d}.json"
            path.write_text(dumps(scheme), encoding="utf-8")
        state = {
            "rounds": self.rounds,
            "flips": self.flips,
            "seconds": self.seconds,
            "waited": self.waited,
            "told": self.told,
        }
        (self.folder / "state.json").write_text(json.dumps(state), encoding="utf-8")

    def _origin(self, rank: int) -> str:
        """Where the rank comes from if the second stage began with it and the command hides it."""
        hidden = self.settings.catalogue or not all(x.name for x in self.settings.known)
        for scheme in self._known() if hidden else ():
            if scheme.rank == rank:
                return f"; rank from {scheme.provenance.split('; rank from ')[-1]}"
        return ""

    def _known(self) -> list[Scheme]:
        """Known schemes of the grid, with any coefficients: the second stage begins with them."""
        settings = self.settings
        if settings.aim is None:
            return []
        own = [x for x in settings.known if sorted(x.grid) == sorted(settings.grid)]
        own += find(*settings.grid) if settings.catalogue else ()
        return [orient(scheme, *settings.grid) for scheme in own]

    @property
    def _least(self) -> int | None:
        """Least rows of a node in the pools."""
        return min((x.least for x in self.pools.values() if x.least is not None), default=None)

    def _task(self, rng: np.random.Generator) -> Task:
        settings, best, late = self.settings, self.best, self.waited >= PATIENCE
        reached = best is not None and best.rank <= settings.wanted
        descending = STILL_DESCENDING if reached else STILL_WANTING
        second = settings.aim is not None and best is not None and (reached or late)
        if second and rng.random() > descending:
            # Often from the best, so that a good scheme is refined, not only looked for.
            index = 0 if rng.random() < 0.3 else int(rng.integers(len(self.elite)))
            wander, seed = bool(rng.random() < 0.8), int(rng.integers(1, 2**63))
            return Polish(self.elite[index][1], settings.objective, wander, seed)
        ring = self._ring(rng)
        pool, rows = self.pools[ring], settings.rows_of(settings.wanted)
        symmetric = settings.partition is not None
        walk = choose(pool, lambda rng: self._fresh(ring, rng), symmetric, rows, rng)
        lift_from = max(rows, pool.least or 0) if late else rows
        return Descent(walk, settings.partition, lift_from)

    def _ring(self, rng: np.random.Generator) -> Ring:
        """Mostly the ring whose pool has come further; the first one on a tie."""
        if self.settings.evenly:
            return self.settings.rings[rng.integers(len(self.settings.rings))]
        ahead, *behind = sorted(self.pools, key=lambda ring: self.pools[ring].least or math.inf)
        return behind[0] if behind and rng.random() < LAGGARD else ahead

    def _fresh(self, ring: Ring, rng: np.random.Generator) -> Node:
        """Where a walk begins that does not go on from the pool."""
        settings = self.settings
        if settings.partition is not None:
            return orbits(settings.grid[0], settings.partition)
        # Those of least rank half of the time, of the next a quarter, ...
        ranks = sorted({start.rank for start in self.starts[ring]})
        rank = ranks[min(int(rng.geometric(0.5)) - 1, len(ranks) - 1)]
        equals = [start for start in self.starts[ring] if start.rank == rank]
        if len(ranks) == 1:  # all are the classical scheme
            whole = [start for start in equals if len(start.parts) == 1]
            divided = [start for start in equals if len(start.parts) > 1]
            equals = whole if rng.random() < UNDIVIDED else divided or whole
        return begin(equals[rng.integers(len(equals))], settings.grid, ring, rng)

    def _value(self, scheme: Scheme) -> Value:
        aim = self.settings.aim
        return (scheme.rank, *(aim.value(scheme) if aim else (sum(scheme.nonzeros),)))

    def _keep(self, scheme: Scheme, rng: np.random.Generator) -> None:
        """Make room among the elite; the best always stays in front."""
        if self.elite and scheme.rank > self.elite[0][1].rank:
            return
        if self.elite and scheme.rank < self.elite[0][1].rank:
            self.elite = []
        if any(scheme == other for _, other in self.elite):
            return
        entry = self._value(scheme), scheme
        if not self.elite or entry[0] < self.elite[0][0]:
            self.elite.insert(0, entry)
            self.told = None
        else:
            self.elite.append(entry)
        if len(self.elite) > ELITE:
            self.elite.pop(1 + int(rng.integers(ELITE)))

    def _load(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for ring in self.pools:
            path = folder / f"{ring}.npz"
            if path.exists():
                self.pools[ring] = pools.load(path)
                if self.pools[ring].grid != self.settings.grid:
                    raise TiercelValueError(
                        f"{folder} holds a search for {self.pools[ring].grid}, not for "
                        f"{self.settings.grid}: choose another folder"
                    )
        state = {}
        if (folder / "state.json").exists():
            state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
            self.rounds, self.flips = state["rounds"], state["flips"]
            self.seconds, self.waited = state["seconds"], state.get("waited", 0)
        rng = np.random.default_rng([self.settings.seed, self.rounds])
        for path in sorted(folder.glob("scheme-*.json")):
            self._keep(load_scheme(path), rng)
        if state.get("told"):
            self.told = tuple(state["told"])
