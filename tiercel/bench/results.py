"""What a benchmark run leaves behind: frozen records that go to JSON and come back the same."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tiercel.bench.case import Case
from tiercel.bench.peers import TIERCEL
from tiercel.bench.timing import Spread
from tiercel.errors import TiercelValueError

FORMAT = 1
WRONG = 32.0  # the default accuracy allows a growth of 8, on average over random data
AND = " && "  # between the commands of a run in parts


@dataclass(frozen=True)
class Timing:
    """One library on one case: seconds per call, and its time over tiercel's in the same round.

    ``ratio`` is None for tiercel itself and where tiercel has no time. ``error`` is the relative
    Frobenius error against float64 (exact dot products for float64) on sampled entries.
    """

    library: str
    seconds: Spread
    rounds: int
    error: float | None = None
    ratio: Spread | None = None


@dataclass(frozen=True)
class CaseResult:
    """All libraries on one case; ``plan`` is tiercel's own account of what it chose.

    ``date``: when it was measured, where the results come from several runs.
    """

    case: Case
    timings: tuple[Timing, ...]
    plan: dict[str, Any] | None = None
    date: str = ""

    def of(self, library: str) -> Timing | None:
        """The timing of a library, or None if it has none."""
        return next((t for t in self.timings if t.library == library), None)

    def gflops(self, library: str) -> float | None:
        """Effective rate 2·M·N·K / median time, in GFLOP/s."""
        timing = self.of(library)
        return self.case.flops / timing.seconds.median * 1e-9 if timing else None

    @property
    def best_peer(self) -> Timing | None:
        """The peer against which tiercel looks worst."""
        peers = [t for t in self.timings if t.ratio is not None]
        return min(peers, key=lambda t: t.ratio.median if t.ratio else 0.0, default=None)

    @property
    def ratio(self) -> Spread | None:
        """Speed of tiercel over the best peer's: above 1, tiercel is ahead."""
        return self.best_peer.ratio if self.best_peer else None

    @property
    def meets_bar(self) -> bool | None:
        """Whether the median ratio reaches the case's bar; None without a bar or a ratio.

        A product that is wrong meets none, however fast it was.
        """
        if self.case.bar is None or self.ratio is None:
            return None
        return self.ratio.median >= self.case.bar and not self.is_wrong

    @property
    def is_wrong(self) -> bool:
        """Whether tiercel's error is ``WRONG`` times that of every peer."""
        ours = self.of(TIERCEL)
        errors = [t.error for t in self.timings if t.library != TIERCEL and t.error is not None]
        return bool(ours and ours.error and errors and ours.error > WRONG * max(errors))


@dataclass(frozen=True)
class Overhead:
    """Microseconds per call on n×n float32 arrays."""

    size: int
    numpy_us: float
    tiercel_us: float


@dataclass(frozen=True)
class Peak:
    """Highest measured multiply-add rate, GFLOP/s."""

    dtype: str
    threads: int
    gflops: float


@dataclass(frozen=True)
class Results:
    """A whole run. ``seconds`` is its wall time; ``command`` reproduces it.

    A run may have been made in parts (`joined`): ``command`` lists them, each case has the date of
    its own part, and ``date`` and ``machine`` are the last one's.
    """

    command: str
    date: str
    seconds: float
    seed: int
    machine: dict[str, Any]
    libraries: dict[str, str]
    cases: tuple[CaseResult, ...]
    peaks: tuple[Peak, ...] = ()
    overhead: tuple[Overhead, ...] = ()
    notes: tuple[str, ...] = ()
    format: int = field(default=FORMAT)

    def peak(self, case: Case) -> float | None:
        """The measured peak that holds for a case's dtype and threads, GFLOP/s."""
        key = (case.dtype, case.threads)
        return next((p.gflops for p in self.peaks if (p.dtype, p.threads) == key), None)

    def percent_of_peak(self, result: CaseResult) -> float | None:
        """tiercel's effective rate in per cent of the measured peak; a scheme can pass 100."""
        rate, peak = result.gflops(TIERCEL), self.peak(result.case)
        return 100 * rate / peak if rate and peak else None


def write_json(results: Results, path: Path) -> None:
    """Write ``results``; floats are cut to 6 significant digits, far below the noise."""
    text = json.dumps(short_floats(asdict(results)), indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def read_json(path: Path) -> Results:
    """Read what `write_json` wrote. Raises ``TiercelValueError`` for anything else."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        version = data.get("format")
    except (ValueError, AttributeError):
        raise TiercelValueError(
            f"{path} holds no results; allowed: a file that `tiercel bench --json` wrote"
        ) from None
    if version != FORMAT:
        raise TiercelValueError(
            f"{path}: result format {version!r}; this version reads format {FORMAT}; "
            "run the benchmark again"
        )
    data["cases"] = tuple(_case_result(entry) for entry in data["cases"])
    data["peaks"] = tuple(Peak(**entry) for entry in data["peaks"])
    data["overhead"] = tuple(Overhead(**entry) for entry in data["overhead"])
    data["notes"] = tuple(data["notes"])
    return Results(**data)


def joined(earlier: Results, later: Results) -> Results:
    """One run of two parts. A case that both have is the later one's; a peak is the higher one."""
    dated = [replace(result, date=result.date or earlier.date) for result in earlier.cases]
    dated += [replace(result, date=result.date or later.date) for result in later.cases]
    peaks: dict[tuple[str, int], float] = {}
    for peak in (*earlier.peaks, *later.peaks):
        key = (peak.dtype, peak.threads)
        peaks[key] = max(peak.gflops, peaks.get(key, 0.0))
    commands = dict.fromkeys((*earlier.command.split(AND), later.command))
    return replace(
        later,
        command=AND.join(commands),
        seconds=earlier.seconds + later.seconds,
        libraries=earlier.libraries | later.libraries,
        cases=tuple({result.case: result for result in dated}.values()),
        peaks=tuple(Peak(*key, rate) for key, rate in peaks.items()),
        overhead=later.overhead or earlier.overhead,
        notes=tuple(dict.fromkeys((*earlier.notes, *later.notes))),
    )


def _case_result(entry: dict[str, Any]) -> CaseResult:
    timings = tuple(_timing(timing) for timing in entry["timings"])
    return CaseResult(Case(**entry["case"]), timings, entry["plan"], entry.get("date", ""))


def _timing(entry: dict[str, Any]) -> Timing:
    ratio = Spread(**entry["ratio"]) if entry["ratio"] else None
    return Timing(**entry | {"seconds": Spread(**entry["seconds"]), "ratio": ratio})


def short_floats(value: Any) -> Any:
    """The same with six digits of every float, far below the noise.

    >>> short_floats({"seconds": [0.12345678, 1]})
    {'seconds': [0.123457, 1]}
    """
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: short_floats(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [short_floats(item) for item in value]
    return value
