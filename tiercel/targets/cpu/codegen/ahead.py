"""Fetching ahead: what is read next comes to L2 while registers multiply, some lines for each tile.

A record says what: ``count`` runs of ``nbytes`` contiguous bytes, ``stride`` bytes apart. Those of
an operand where the caller stored it are short, each on another page, where no hardware prefetcher
goes.
"""

from __future__ import annotations

from dataclasses import dataclass

from tiercel.targets.cpu.codegen.emit import Function
from tiercel.targets.cpu.codegen.values import I64, PTR, Val
from tiercel.targets.cpu.params import LINE

#: Words of a record.
AHEAD = ("at", "count", "nbytes", "stride")


@dataclass(frozen=True)
class Position:
    """Where a stream of lines is: the next ``line``, ``left`` lines of its run, ``rest`` in all."""

    line: Val
    left: Val
    rest: Val

    def values(self) -> tuple[Val, Val, Val]:
        """For a loop to carry."""
        return self.line, self.left, self.rest


@dataclass(frozen=True)
class Stream:
    """The lines of a record in order, ``quota`` of them a turn.

    ``run``: lines of a run; ``jump``: bytes from the last one to the next run.
    """

    start: Position
    run: Val
    jump: Val
    quota: Val


def record(f: Function) -> Val:
    """Room for a record."""
    return f.stack(I64, len(AHEAD))


def describe(f: Function, to: Val, at: Val, count: Val, nbytes: Val, stride: Val) -> None:
    """Fill a record."""
    for i, word in enumerate((at, count, nbytes, stride)):
        f.store(word, to + 8 * i, 8)


def describe_block(
    f: Function, to: Val, at: Val, strides: tuple[Val, Val], item: Val, rows: Val, cols: Val
) -> None:
    """Fill a record with a block that lies by rows or by columns; with nothing for another one."""
    rs, cs = strides
    by_row, by_col = cs.eq(item), rs.eq(item)
    count = f.select(by_row, rows, f.select(by_col, cols, 0))
    nbytes = f.select(by_row, cols, rows) * item
    describe(f, to, at, f.select(nbytes > 0, count, 0), nbytes, f.select(by_row, rs, cs))


def stream(f: Function, of: Val, turns: Val) -> Stream:
    """The lines of a record, all of them within so many turns."""
    at = f.load(of, PTR, 8)
    count, nbytes, stride = (f.load(of + 8 * i, I64, 8) for i in range(1, len(AHEAD)))
    run = f.ceil_div(nbytes, LINE)
    total = count * run
    jump = stride - (run - 1) * LINE
    return Stream(Position(at, run, total), run, jump, f.ceil_div(total, turns))


def fetch(f: Function, of: Stream, now: Position) -> Position:
    """One turn's lines; returns where the next turn goes on."""
    count = of.quota.min(now.rest)
    with f.loop(0, count, carry=[now.line, now.left]) as step:
        line, left = step.carried
        f.prefetch(line, locality=2)
        last = left.eq(1)
        step.next(line + f.select(last, of.jump, LINE), f.select(last, of.run, left - 1))
    line, left = step.results
    return Position(line, left, now.rest - count)
