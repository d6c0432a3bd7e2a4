"""The columns of the result table, as plain text: shared by the terminal and the HTML page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tiercel.bench.peers import TIERCEL
from tiercel.bench.results import CaseResult, Results

DTYPE_SHORT = {"float32": "fp32", "float64": "fp64"}


@dataclass(frozen=True)
class Cell:
    """Text, and whether it is worth a reader's eye: ``""``, ``"good"``, ``"bad"`` or ``"best"``."""

    text: str
    mark: str = ""


MISSING = Cell("–")


@dataclass(frozen=True)
class Column:
    """A title and the cell that it shows for a case. Of two columns the lower ``rank`` stays."""

    title: str
    cell: Callable[[CaseResult], Cell]
    rank: int = 0


def columns(results: Results, libraries: Sequence[str]) -> list[Column]:
    """Every column, in the order shown. Library columns hold effective GFLOP/s."""
    peers = [Column(name, _rate_of(name), rank=3) for name in libraries if name != TIERCEL]
    bars = any(result.case.bar is not None for result in results.cases)
    return [
        Column("M×N×K", lambda r: Cell(r.case.label)),
        Column("type", lambda r: Cell(DTYPE_SHORT[r.case.dtype])),
        Column("thr", lambda r: Cell(str(r.case.threads))),
        Column(TIERCEL, _rate_of(TIERCEL)),
        *peers,
        Column("best peer", _best_peer, rank=1),
        Column("ratio", _ratio),
        Column("p25–p75", _quartiles, rank=2),
        *([Column("bar", _bar)] if bars else []),
        Column("% peak", lambda r: _percent(results.percent_of_peak(r))),
        Column("error", lambda r: _error(r, TIERCEL)),
        Column("peer's", lambda r: _error(r, r.best_peer.library) if r.best_peer else MISSING, 2),
    ]


def _rate_of(library: str) -> Callable[[CaseResult], Cell]:
    def cell(result: CaseResult) -> Cell:
        rate = result.gflops(library)
        if rate is None:
            return MISSING
        fastest = max(result.gflops(t.library) or 0.0 for t in result.timings)
        return Cell(_short(rate), "best" if rate == fastest else "")

    return cell


def _short(rate: float) -> str:
    return f"{rate:.1f}" if rate < 1000 else f"{rate:.0f}"


def _best_peer(result: CaseResult) -> Cell:
    if result.best_peer is None:
        return MISSING
    name = result.best_peer.library
    return Cell(f"{name} {_short(result.gflops(name) or 0.0)}")


def _percent(percent: float | None) -> Cell:
    return Cell(f"{percent:.0f}", "good" if percent > 100 else "") if percent else MISSING


def _ratio(result: CaseResult) -> Cell:
    if result.ratio is None:
        return MISSING
    return Cell(f"{result.ratio.median:.3f}", "good" if result.ratio.median >= 1.0 else "bad")


def _quartiles(result: CaseResult) -> Cell:
    return Cell(f"{result.ratio.p25:.2f}–{result.ratio.p75:.2f}") if result.ratio else MISSING


def _bar(result: CaseResult) -> Cell:
    if result.case.bar is None:
        return Cell("")
    mark = {True: "good", False: "bad", None: ""}[result.meets_bar]
    return Cell(f"{result.case.bar:.2f}", mark)


def _error(result: CaseResult, library: str) -> Cell:
    timing = result.of(library)
    return Cell(f"{timing.error:.1e}") if timing and timing.error is not None else MISSING
