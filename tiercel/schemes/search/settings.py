"""What a search is asked for, and what it reports on the way."""

from __future__ import annotations

from dataclasses import dataclass

from tiercel.errors import TiercelValueError
from tiercel.schemes.marks import mark
from tiercel.schemes.scheme import Scheme
from tiercel.schemes.search.node import Grid, Ring, check_width
from tiercel.schemes.search.objectives import Objective, objective
from tiercel.schemes.search.symmetry import Partition


@dataclass(frozen=True)
class Settings:
    """What to search for.

    Args:
        grid: (m, k, n).
        objective: ``"rank"`` stops at the first scheme of the target rank; see `objectives` for the
            figures that the second stage minimises.
        target: rank to reach; by default the published mark, or the least possible without one.
        rings: where to walk: ``"ternary"``, or ``"mod2"`` with a lift afterwards; of two, mostly in
            the one that has come further. The first descent is ten times as quick modulo 2, but
            some of what is found there has no lift.
        evenly: walk in all rings alike instead. What comes of it is more varied: the most accurate
            ⟨2,4,4;26⟩ known was found so.
        partition: of the diagonal, for a search among schemes with cyclic symmetry; modulo 2 only.
        seed: with `processes` it determines every round.
        processes: tasks at a time.
        known: schemes to start from.
        catalogue: start from the catalogue's schemes too.

    Raises:
        TiercelValueError: an unknown objective, symmetry without a cube, or too large a grid.
    """

    grid: Grid
    objective: str = "rank"
    target: int | None = None
    rings: tuple[Ring, ...] = ("mod2", "ternary")
    evenly: bool = False
    partition: Partition | None = None
    seed: int = 0
    processes: int = 1
    known: tuple[Scheme, ...] = ()
    catalogue: bool = True

    def __post_init__(self) -> None:
        if self.objective != "rank":
            objective(self.objective)
        for ring in self.rings:
            check_width(self.grid, ring)
        if self.partition is not None and (len(set(self.grid)) > 1 or self.rings != ("mod2",)):
            raise TiercelValueError(
                "cyclic symmetry needs a cube and the ring mod2 alone: got grid "
                f"{self.grid} and rings {self.rings}"
            )

    @property
    def aim(self) -> Objective | None:
        """The second stage's objective; None where the rank is all that counts."""
        return None if self.objective == "rank" else objective(self.objective)

    @property
    def wanted(self) -> int:
        """The rank to reach."""
        known_mark = mark(self.grid)
        return self.target or (known_mark.rank if known_mark else 1)

    def rank_of(self, rows: int) -> int:
        """Products of a node with so many rows."""
        return rows if self.partition is None else 3 * rows + len(self.partition)

    def rows_of(self, rank: int) -> int:
        """Rows of a node with at most so many products."""
        return rank if self.partition is None else max(1, (rank - len(self.partition)) // 3)

    @property
    def command(self) -> str:
        """The command that asks for the same, for a scheme's provenance."""
        m, k, n = self.grid
        words = [f"tiercel search {m} {k} {n} --objective {self.objective} --rank {self.wanted}"]
        words.append(f"--seed {self.seed} --processes {self.processes}")
        if self.partition is not None:
            words.append(f"--symmetry {','.join(''.join(map(str, x)) for x in self.partition)}")
        elif self.evenly or len(self.rings) == 1:
            words.append(f"--ring {'both' if self.evenly else self.rings[0]}")
        if not self.catalogue:
            words.append("--from-classical")
        words += [f"--start {scheme.name}" for scheme in self.known if scheme.name]
        unnamed = sum(not scheme.name for scheme in self.known)
        if unnamed:
            words.append(f"--start ({unnamed} schemes)")
        return " ".join(words)


@dataclass(frozen=True)
class Progress:
    """Where a search stands after a round: times in seconds, ranks in products."""

    seconds: float
    flips: int
    least: int
    pooled: int
    best: Scheme | None
    figure: float | None
